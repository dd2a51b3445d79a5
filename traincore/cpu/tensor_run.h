// Many dense tensors as one run of elements, cut into blocks of one size whatever the tensors' sizes: thirty thousand
// small tensors and one huge one are the same work. The cut depends on the shapes alone.
#pragma once
#include <algorithm>

#include "traincore/core/fail.h"
#include "traincore/core/view.h"

namespace tc {

class TensorRun {
 public:
  static constexpr int64_t kBlock = 16384;  // elements

  static int64_t total(const tc_tensor* tensors, int64_t count) {
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i)
      if (__builtin_add_overflow(n, element_count(tensors[i]), &n))
        fail(TC_ERR_INVALID_SHAPE, "the tensors of one call have more than 2^63 elements together");
    return n;
  }
  static int64_t blocks(int64_t total) { return (total + kBlock - 1) / kBlock; }

  // `starts` has room for count + 1 and must outlive the run.
  TensorRun(const tc_tensor* tensors, int64_t count, int64_t* starts) : count_(count), starts_(starts) {
    starts[0] = 0;
    for (int64_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + element_count(tensors[i]);
  }
  int64_t blocks() const { return blocks(starts_[count_]); }
  // Position of a tensor's first element in the run.
  int64_t start(int64_t tensor) const { return starts_[tensor]; }

  // f(tensor, begin, end) for the elements that make up a block, in order: [begin, end) of that tensor, not empty.
  template <class F>
  void for_pieces(int64_t block, F&& f) const {
    const int64_t begin = block * kBlock, end = std::min(begin + kBlock, starts_[count_]);
    int64_t tensor = std::upper_bound(starts_, starts_ + count_, begin) - starts_ - 1;
    for (int64_t at = begin; at < end; ++tensor) {
      const int64_t stop = std::min(end, starts_[tensor + 1]);
      if (stop > at) f(tensor, at - starts_[tensor], stop - starts_[tensor]);
      at = stop;
    }
  }

 private:
  int64_t count_;
  const int64_t* starts_;
};

}  // namespace tc
