// Tensors seen as rows of contiguous elements, or as flat elements, whatever their leading strides.
#pragma once
#include "traincore/core/numeric.h"

namespace tc {

// Rows of a [rows..., cols] tensor. Leading dimensions that are dense together are merged, so one division per row is
// rare and none is the rule. Built once at the door of a kernel; operator[] is all that the kernel sees.
template <class T>
struct Rows {
  T* data;
  int64_t count, cols;
  int32_t rank;
  int64_t extent[TC_MAX_RANK], stride[TC_MAX_RANK];
  TC_ALWAYS_INLINE TC_HD T* operator[](int64_t row) const {
    if (rank <= 1) return data + row * (rank ? stride[0] : 0);
    T* p = data;
    TC_NO_UNROLL
    for (int i = rank - 1; i >= 0; --i) {
      p += (row % extent[i]) * stride[i];
      row /= extent[i];
    }
    return p;
  }
  // True when row r starts at data + r * cols: the whole tensor is one run of memory.
  TC_HD bool dense() const { return rank == 0 || (rank == 1 && stride[0] == cols); }
};

// The first `leading` dimensions are rows, the rest must be one contiguous run of `cols` elements.
template <class T>
Rows<T> rows_of(const tc_tensor& t, int leading) {
  Rows<T> rows{static_cast<T*>(t.data), 1, 1, 0, {}, {}};
  for (int i = leading; i < t.rank; ++i) rows.cols *= t.shape[i];
  for (int i = 0; i < leading; ++i) {
    rows.count *= t.shape[i];
    if (t.shape[i] == 1) continue;
    const bool merges = rows.rank && rows.stride[rows.rank - 1] == t.shape[i] * t.stride[i];
    const int at = merges ? rows.rank - 1 : rows.rank++;
    rows.extent[at] = merges ? rows.extent[at] * t.shape[i] : t.shape[i];
    rows.stride[at] = t.stride[i];
  }
  return rows;
}

// [rows..., cols]: the last dimension is the row.
template <class T>
Rows<T> rows_of(const tc_tensor& t) {
  return rows_of<T>(t, t.rank ? t.rank - 1 : 0);
}

// [rows...]: one value per row, any strides, 0 included.
template <class T>
Rows<T> values_of(const tc_tensor& t) {
  return rows_of<T>(t, t.rank);
}

// Rows of a [rows..., cols] tensor whose dtype is known only at run time.
class AnyRows {
 public:
  explicit AnyRows(const tc_tensor& t)
      : rows_(rows_of<std::byte>(t)), size_(static_cast<int64_t>(tc_dtype_size(t.dtype))) {}
  std::byte* at(int64_t row, int64_t column = 0) const {
    return rows_.data + (rows_[row] - rows_.data + column) * size_;
  }
  int64_t count() const { return rows_.count; }
  int64_t cols() const { return rows_.cols; }

 private:
  Rows<std::byte> rows_;
  int64_t size_;
};

// [rows...] of i32 or i64, one number per row, any strides: targets, token ids, positions.
class Indices {
 public:
  explicit Indices(const tc_tensor& t)
      : narrow_(values_of<const int32_t>(t)), wide_(values_of<const int64_t>(t)), is_wide_(t.dtype == TC_DTYPE_I64) {}
  int64_t operator[](int64_t row) const { return is_wide_ ? *wide_[row] : *narrow_[row]; }
  int64_t count() const { return wide_.count; }

 private:
  Rows<const int32_t> narrow_;
  Rows<const int64_t> wide_;
  bool is_wide_;
};

inline bool given(const tc_tensor& t) { return t.data != nullptr || t.rank != 0; }

// Row-major without gaps; a tensor without elements need not be.
inline bool is_dense(const tc_tensor& t) {
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    if (t.shape[i] == 1) continue;
    if (t.stride[i] != step) return false;
    step *= t.shape[i];
  }
  return true;
}

inline int64_t element_count(const tc_tensor& t) {
  int64_t n = 1;
  for (int i = 0; i < t.rank; ++i) n *= t.shape[i];
  return n;
}

}  // namespace tc
