// Device code: which rows a group takes one after the other, and where they lie in memory.
#pragma once
#include <type_traits>

#include "traincore/core/view.h"
#include "traincore/cuda/reduce.cuh"

namespace tc::cuda {

// The group's rows first, first + stride, ... below a tensor's number of rows, as turns 0, 1, ... below count. There are
// fewer than 2^31 of them, since rows take memory, and so are there groups.
class Turns {
 public:
  int count;
  // `tensors`: Rows that RowsInTurn will be asked for.
  template <class Group, class... R>
  __device__ __forceinline__ Turns(const Group& group, int64_t rows, const R&... tensors)
      : first_(unsigned(group.first_row())),
        stride_(unsigned(group.row_stride())),
        is_even_(((tensors.rank <= 1) && ...)) {
    count = first_ < rows ? int((rows - first_ - 1) / stride_ + 1) : 0;
  }
  __device__ __forceinline__ int64_t row(int turn) const {
    return int64_t(first_ + uint64_t(unsigned(turn)) * stride_);
  }
  __device__ __forceinline__ int64_t stride() const { return stride_; }
  // Whether the rows of each tensor lie at one distance.
  __device__ __forceinline__ bool is_even() const { return is_even_; }

 private:
  unsigned first_, stride_;
  bool is_even_;
};

// Where the rows of one tensor lie: a product and a sum a turn, unless there are several strides between them.
template <class T>
class RowsInTurn {
 public:
  __device__ __forceinline__ RowsInTurn(const Rows<T>& rows, const Turns& turns)
      : rows_(rows),
        turns_(turns),
        first_(reinterpret_cast<uintptr_t>(rows.data + turns.row(0) * rows.stride[0])),
        step_(turns.stride() * rows.stride[0] * int64_t{sizeof(T)}) {}
  __device__ __forceinline__ T* operator[](int turn) const {
    if (turns_.is_even()) return reinterpret_cast<T*>(first_ + unsigned(turn) * uint64_t(step_));
    return rows_[turns_.row(turn)];
  }

 private:
  const Rows<T>& rows_;
  const Turns& turns_;
  uintptr_t first_;
  int64_t step_;
};

// load(row) of every row in turn, loaded a turn ahead. Called for turns 0, 1, ...
template <class F>
class ValuesAhead {
 public:
  using Value = std::invoke_result_t<F, int64_t>;
  template <class Group>
  __device__ __forceinline__ ValuesAhead(const Group&, const Turns& turns, F load)
      : turns_(turns), load_(load), next_(of_turn(0)) {}
  __device__ __forceinline__ Value operator[](int turn) {
    const Value now = next_;
    next_ = of_turn(turn + 1);
    return now;
  }

 private:
  __device__ __forceinline__ Value of_turn(int turn) const {
    return turn < turns_.count ? load_(turns_.row(turn)) : Value{};
  }
  const Turns& turns_;
  F load_;
  Value next_;
};

// The same for kernels in which a value would wait behind the rows on their way: the lanes of a group that are in one warp
// have one of the next values each, which they load half a window ahead. Called by all of the group.
template <class Group, class F>
class ValuesInTurn {
 public:
  using Value = std::invoke_result_t<F, int64_t>;
  __device__ __forceinline__ ValuesInTurn(const Group& group, const Turns& turns, F load)
      : group_(group), turns_(turns), load_(load), lane_(group.lane() % kWindow) {
    if (turns.count > 0) mine_ = of_turn(lane_);
  }
  __device__ __forceinline__ Value operator[](int turn) {
    if (turn % kHalf == 0 && turn > 0) {
      const Value later = of_turn(turn + kHalf + lane_ % kHalf);
      mine_ = lane_ / kHalf == turn / kHalf % 2 ? mine_ : later;
    }
    return group_.from_lane(mine_, turn % kWindow);
  }

 private:
  static constexpr int kWindow = Group::kLanesInWarp, kHalf = kWindow / 2;
  // Past the last turn its value, so that no lane goes another way.
  __device__ __forceinline__ Value of_turn(int turn) const { return load_(turns_.row(::min(turn, turns_.count - 1))); }
  const Group& group_;
  const Turns& turns_;
  F load_;
  int lane_;
  Value mine_{};
};

}  // namespace tc::cuda
