#include "traincore/cpu/elements.h"

#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/vector.h"

namespace tc {
namespace {

void gather(int32_t dtype, const std::byte* from, int64_t step, int64_t n, float* to) {
  if (step == 1 || n == 1) return widen(dtype, from, n, to);
  with_type(FloatTypes{}, dtype, [&]<class T>() {
    const T* p = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(p[i * step]);
  });
}

void scatter(int32_t dtype, const float* from, int64_t step, int64_t n, std::byte* to) {
  if (step == 1 || n == 1) return narrow(dtype, from, n, to);
  with_type(FloatTypes{}, dtype, [&]<class T>() {
    T* p = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) p[i * step] = T(from[i]);
  });
}

}  // namespace

Elements::Elements(const tc_tensor& t)
    : data_(static_cast<std::byte*>(t.data)), dtype_(t.dtype), count_(element_count(t)), run_(1), step_(1) {
  const auto merged = values_of<std::byte>(t);
  rank_ = merged.rank;
  std::copy_n(merged.extent, rank_, extent_);
  std::copy_n(merged.stride, rank_, stride_);
  if (rank_ == 0) return;
  --rank_;
  run_ = extent_[rank_];
  step_ = stride_[rank_];
}

std::byte* Elements::row_start(int64_t row) const {
  int64_t offset = 0;
  for (int i = rank_ - 1; i >= 0; --i) {
    offset += (row % extent_[i]) * stride_[i];
    row /= extent_[i];
  }
  return data_ + offset * static_cast<int64_t>(tc_dtype_size(dtype_));
}

// f(memory, done, length) for the runs that make up [first, first + n); `done` elements came before.
template <class F>
void Elements::for_runs(int64_t first, int64_t n, F&& f) const {
  int64_t row = first / run_, column = first % run_;
  const int64_t bytes_apart = step_ * static_cast<int64_t>(tc_dtype_size(dtype_));
  for (int64_t done = 0; done < n; ++row, column = 0) {
    const int64_t length = std::min(run_ - column, n - done);
    f(row_start(row) + column * bytes_apart, done, length);
    done += length;
  }
}

float* Elements::own_run(int64_t first, int64_t n) const {
  const int64_t column = first % run_;
  if (dtype_ != TC_DTYPE_F32 || step_ != 1 || column + n > run_) return nullptr;
  return reinterpret_cast<float*>(row_start(first / run_)) + column;
}

const float* Elements::read(int64_t first, int64_t n, float* scratch) const {
  if (const float* own = own_run(first, n)) return own;
  for_runs(first, n, [&](const std::byte* memory, int64_t done, int64_t length) {
    gather(dtype_, memory, step_, length, scratch + done);
  });
  return scratch;
}

float* Elements::place(int64_t first, int64_t n, float* scratch) const {
  float* const own = own_run(first, n);
  return own ? own : scratch;
}

void Elements::write(int64_t first, int64_t n, const float* values) const {
  if (values == own_run(first, n)) return;
  for_runs(first, n, [&](std::byte* memory, int64_t done, int64_t length) {
    scatter(dtype_, values + done, step_, length, memory);
  });
}

}  // namespace tc
