// Rows of full-size tensors for a kernel that computes on elements of T. Where every tensor of a call has the dtype T, a
// row is the tensor's own memory; in a mixture T is float, and a row of another dtype passes through `line`, memory of
// the calling thread that holds `cols` elements.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/cpu/vector.h"

namespace tc {

// The dtype that a kernel for these full-size tensors computes on, and whether they are a mixture. The first is always
// given, absent ones do not count.
struct KernelDtype {
  int32_t dtype;
  bool mixed;
};
inline KernelDtype kernel_dtype(std::initializer_list<const tc_tensor*> tensors) {
  const int32_t first = (*tensors.begin())->dtype;
  const bool mixed =
      std::any_of(tensors.begin(), tensors.end(), [&](const tc_tensor* t) { return given(*t) && t->dtype != first; });
  return {mixed ? int32_t{TC_DTYPE_F32} : first, mixed};
}
inline std::string kernel_text(KernelDtype k) {
  return k.mixed ? "a row at a time in f32; rows of another dtype are converted on their way"
                 : fmt::format("a row at a time, stored as {}", tc_dtype_name(k.dtype));
}

template <class T>
class StagedRows {
 public:
  explicit StagedRows(const tc_tensor& t) : rows_(t), given_(given(t)), dtype_(t.dtype) {}
  int64_t count() const { return rows_.count(); }
  int64_t cols() const { return rows_.cols(); }
  bool staged() const { return given_ && dtype_ != dtype_of<T>; }

  // NULL where the tensor is absent.
  const T* read(int64_t r, float* line) const {
    if constexpr (std::is_same_v<T, float>)
      if (staged()) {
        widen(dtype_, rows_.at(r), cols(), line);
        return line;
      }
    return own(r);
  }
  // Where to make row r before write().
  T* place(int64_t r, float* line) const {
    if constexpr (std::is_same_v<T, float>)
      if (staged()) return line;
    return own(r);
  }
  void write(int64_t r, const T* values) const {
    if constexpr (std::is_same_v<T, float>)
      if (staged()) narrow(dtype_, values, cols(), rows_.at(r));
  }

 private:
  T* own(int64_t r) const { return given_ ? reinterpret_cast<T*>(rows_.at(r)) : nullptr; }

  AnyRows rows_;
  bool given_;
  int32_t dtype_;
};

// A line for each of K tensors' rows, if any of them needs one.
template <int K>
class Lines {
 public:
  template <class... Tensors>
  explicit Lines(int64_t cols, const Tensors&... tensors)
      : cols_((tensors.staged() || ...) ? cols : 0), memory_(static_cast<size_t>(K * cols_) * sizeof(float)) {
    static_assert(sizeof...(tensors) == K);
  }
  float* operator[](int i) const { return static_cast<float*>(memory_.data()) + i * cols_; }

 private:
  int64_t cols_;
  ThreadScratch memory_;
};

}  // namespace tc
