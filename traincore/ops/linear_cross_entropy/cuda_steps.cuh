// Device code: what the passes of linear cross entropy do to a chunk of rows between its products.
#pragma once
#include "traincore/cuda/loss.cuh"

namespace tc::ops::linear_cross_entropy {

// Some of the valid rows; only the device knows how many there are.
struct ChunkRows {
  const int64_t* list;   // where the valid rows are in the tensors
  const int64_t* count;  // how many they are
  int64_t first, size;   // of the chunk, which the last valid rows need not fill
  // Where row i of the chunk is in the tensors; -1 past the last valid row.
  __device__ __forceinline__ int64_t operator[](int64_t i) const { return first + i < *count ? list[first + i] : -1; }
};

// What is known about a row of the chunk before its gradient is written.
struct RowFacts {
  float max, log_sum, inverse_sum;
  float dloss;     // over the normalizer already
  float weight;    // NaN where the target is no class
  int32_t target;  // -1 where it is no class
};

// Of a chunk: what dx is multiplied by where it is cut into parts, and undone with.
struct DxScale {
  float inverse, beta;  // what a product into dweight takes: its own factor, and that of dweight as it is
  float scale;
};

struct ChunkLogits {
  float* data;        // [chunk, line]
  const float* bias;  // [line], NULL: none
  int64_t line;
};

// to[copy][i][...] = the chunk's row i as `dtype`, for every copy; 0 past the last valid row.
void gather_hidden(const tc_tensor& hidden, const ChunkRows& rows, int32_t dtype, void* to, int64_t line, int copies,
                   const tc_exec& exec);
// dhidden of the chunk's rows = the sum over the parts of from[part][i][...], times scale->inverse if there is a scale.
void scatter_dhidden(const float* from, int64_t line, int parts, const ChunkRows& rows, const DxScale* scale,
                     const tc_tensor& dhidden, const tc_exec& exec);
// to (+)= from, matrices or vectors of one shape and any dtypes.
void convert(const tc_tensor& from, const tc_tensor& to, bool accumulate, const tc_exec& exec);
// Zeros for the rows that are ignored.
void clear_ignored(const cuda::LossOptions& options, const cuda::RowOutputs& outputs, const tc_exec& exec);
void clear_ignored(const cuda::LossOptions& options, const tc_tensor& dhidden, const tc_exec& exec);

// Losses and saved values of the chunk's rows, and `facts` of them. dloss: no data: 1.
void look_at_logits(const cuda::LossOptions& options, const ChunkRows& rows, const ChunkLogits& logits,
                    const Rows<const float>& dloss, const cuda::RowOutputs& outputs, RowFacts* facts,
                    const tc_exec& exec);
// The same facts from what a forward pass saved.
void recall_rows(const cuda::LossOptions& options, const ChunkRows& rows, const Rows<const float>& row_max,
                 const Rows<const float>& row_log_sum, const Rows<const float>& dloss, RowFacts* facts,
                 const tc_exec& exec);
// A scale with which no element of the chunk's dx leaves the range of f16.
void find_scale(const cuda::LossOptions& options, const ChunkRows& rows, const RowFacts* facts, float beta,
                DxScale* scale, const tc_exec& exec);

// Where dx goes, and 0 past the last valid row and the last class.
struct DxOutputs {
  bool in_place;  // in f32 over the logits
  void* parts;    // [parts, chunk, line] of 16 bits, each part what the ones before it left, times the scale; or NULL
  int32_t dtype, count;  // of the parts
};
void write_gradient(const cuda::LossOptions& options, const ChunkRows& rows, const ChunkLogits& logits,
                    const RowFacts* facts, const DxScale* scale, const DxOutputs& outputs, const tc_exec& exec);

}  // namespace tc::ops::linear_cross_entropy
