/* GGUF version 3 model files: metadata, and tensors of type F32, F16 and BF16.  C11 and C++20.
 *
 * The file is mapped, not read: opening a large model is quick, and `data` points into the mapping. Everything that a
 * call returns a pointer to belongs to the file and lasts until tc_gguf_close.
 *
 * INTERNAL: the file cannot be read, is truncated or contradicts itself (counts, offsets, alignment, keys, overlapping
 * tensors). INVALID_ARG: a handle that is not open, a name that is not in the file, NULL.
 * Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#pragma once
#include "traincore/device.h"

TC_C_BEGIN
typedef struct tc_gguf_file tc_gguf_file;

/* As numbered by the format. Tensors of another type, quantized ones, are listed as UNSUPPORTED, without data. */
typedef enum tc_gguf_type_t {
  TC_GGUF_TYPE_UNSUPPORTED = -1,
  TC_GGUF_TYPE_F32 = 0,
  TC_GGUF_TYPE_F16 = 1,
  TC_GGUF_TYPE_BF16 = 30
} tc_gguf_type_t;

typedef struct tc_gguf_tensor_info {
  const char* name;
  int32_t n_dims;
  uint64_t dims[4]; /* dims[0] is contiguous in memory: a [rows, cols] matrix has dims {cols, rows, 1, 1} */
  tc_gguf_type_t type;
  uint64_t offset; /* from the start of the file's tensor data */
  size_t n_bytes;
  const void* data; /* aligned as the file says, at least to 8 */
} tc_gguf_tensor_info;

typedef struct tc_gguf_llama_config {
  int64_t context_length, embedding_length, feed_forward_length, block_count; /* 0 where the file says nothing */
  int64_t attention_head_count;
  int64_t attention_head_count_kv; /* attention_head_count where the file says nothing */
  int64_t rope_dimension_count;
  int64_t vocab_size;      /* else the number of the tokenizer's tokens */
  double rms_norm_epsilon; /* else 1e-5 */
  double rope_freq_base;   /* else 10000 */
  double rope_freq_scale;  /* positions are multiplied by it: 1 / llama.rope.scaling.factor; else 1 */
} tc_gguf_llama_config;

TC_API tc_status_t tc_gguf_open(const char* path, tc_gguf_file** file);
TC_API tc_status_t tc_gguf_close(tc_gguf_file* file);

TC_API uint64_t tc_gguf_tensor_count(const tc_gguf_file* file); /* 0 for a handle that is not open */
TC_API tc_status_t tc_gguf_tensor_at(const tc_gguf_file* file, uint64_t index, tc_gguf_tensor_info* info);
TC_API tc_status_t tc_gguf_get_tensor(const tc_gguf_file* file, const char* name, tc_gguf_tensor_info* info);
/* A copy of a tensor in a new buffer, the caller's to free. UNSUPPORTED_DTYPE: its type is UNSUPPORTED. */
TC_API tc_status_t tc_gguf_tensor_to_buffer(tc_context* ctx, const tc_gguf_file* file, const char* name,
                                            tc_buffer** buffer);

/* A metadata value, or the default: where there is no such key, or it is no string, integer or number that fits. */
TC_API const char* tc_gguf_meta_get_str(const tc_gguf_file* file, const char* key); /* default NULL */
TC_API int64_t tc_gguf_meta_get_i64(const tc_gguf_file* file, const char* key, int64_t default_value);
TC_API double tc_gguf_meta_get_f64(const tc_gguf_file* file, const char* key, double default_value);

/* INVALID_ARG: general.architecture is not llama. INTERNAL: a key of it has no sensible value. */
TC_API tc_status_t tc_gguf_get_llama_config(const tc_gguf_file* file, tc_gguf_llama_config* config);
TC_C_END
