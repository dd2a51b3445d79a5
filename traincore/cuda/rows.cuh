// Device code: the columns of one row, shared by a group of threads, and what a thread keeps of them in registers.
#pragma once
#include "traincore/core/view.h"
#include "traincore/cuda/reduce.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

template <class Tile, class T>
struct Columns {
  static constexpr int kVec = Tile::template kVec<T>;
  static constexpr int kVectors = Tile::kVectors;
  using Values = Floats<kVec>;
  int cols, lane, size;
  __device__ __forceinline__ Columns(const typename Tile::Group& group, int64_t cols_)
      : cols(int(cols_)), lane(group.lane()), size(group.size()) {}

  // Whether element j of the vector at column c is in the row: they all are, or none.
  __device__ __forceinline__ bool in_row(int c, int) const { return c < cols; }
  // Whether the vector that holds column c is this thread's.
  __device__ __forceinline__ bool has(int c) const {
    if constexpr (kVectors == 0) {
      return c / kVec % size == lane;
    } else {
      bool is_mine = false;  // without a division, which takes longer
      all([&](int first, int) { is_mine |= first == c / kVec * kVec; });
      return is_mine;
    }
  }

  // f(first column, which of this thread's vectors) for every vector that a thread may have, in the row or past its end:
  // without a branch, so that none waits for what another one's f loads.
  template <class F>
  __device__ __forceinline__ void all(F&& f) const {
#pragma unroll kVectors
    for (int v = 0; v < kVectors; ++v) f((v * size + lane) * kVec, v);
  }
  // The same, as f.operator()<whether all of it is in the row, or filled where it is not>().
  template <class F>
  __device__ __forceinline__ void look(F&& f) const {
    all([&](int c, int v) { f.template operator()<true>(c, v); });
  }

  // How many elements of a row this thread has, and how many this warp.
  __device__ __forceinline__ int count() const {
    int count = 0;
    if constexpr (kVectors > 0)
      all([&](int c, int) { count += c < cols ? kVec : 0; });
    else
      each([&](int, int) { count += kVec; });
    return count;
  }
  __device__ __forceinline__ int count_in_warp() const {
    if constexpr (!Tile::Group::kIsBlock) return cols;
    const int in_warp = int(threadIdx.x) % 32;
    int count = 0;
    if constexpr (kVectors > 0) {
      all([&](int c, int) { count += ::min(::max(cols - (c - in_warp * kVec), 0), 32 * kVec); });
    } else {
      for (int c = (lane - in_warp) * kVec; c < cols; c += size * kVec) count += ::min(cols - c, 32 * kVec);
    }
    return count;
  }

  // f(first column, which of this thread's vectors) for every vector of the row that is this thread's.
  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
    if constexpr (kVectors > 0) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int c = (v * size + lane) * kVec;
        if (c < cols) f(c, v);
      }
    } else {
      for (int c = lane * kVec; c < cols; c += size * kVec) f(c, 0);
    }
  }
};

// This thread's part of a row: in registers if the tile keeps rows, else read where it is used.
template <class Tile, class T>
class Kept {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ Kept(const Columns<Tile, T>& columns, const T* row) : row_(row) {
    if constexpr (Tile::kVectors > 0)
      columns.each([&](int c, int v) { packs_[v] = Pack<T, kVec>::load_once(row + c); });
  }
  __device__ __forceinline__ Floats<kVec> operator()(int c, int v) const {
    if constexpr (Tile::kVectors > 0)
      return packs_[v].f32();
    else
      return Pack<T, kVec>::load(row_ + c).f32();
  }
  __device__ __forceinline__ Pack<T, kVec> pack(int c, int v) const {
    if constexpr (Tile::kVectors > 0)
      return packs_[v];
    else
      return Pack<T, kVec>::load(row_ + c);
  }

 private:
  const T* row_;
  Pack<T, kVec> packs_[Tile::kVectors > 0 ? Tile::kVectors : 1];
};

// The sum of two rows, in f32, where kTwo; else the first alone.
template <class Tile, class T, bool kTwo>
class KeptSum {
 public:
  __device__ __forceinline__ KeptSum(const Columns<Tile, T>& columns, const T* x, const T* residual)
      : x_(columns, x), residual_(columns, residual) {}
  __device__ __forceinline__ auto operator()(int c, int v) const {
    auto sum = x_(c, v);
    add_to(sum, residual_(c, v));
    return sum;
  }

 private:
  Kept<Tile, T> x_, residual_;
};
template <class Tile, class T>
class KeptSum<Tile, T, false> : public Kept<Tile, T> {
 public:
  __device__ __forceinline__ KeptSum(const Columns<Tile, T>& columns, const T* x, const T*)
      : Kept<Tile, T>(columns, x) {}
};

// stays: in the caches, as AheadShape has it.
template <class Tile, class T>
__device__ __forceinline__ void store(T* row, int c, const Floats<Tile::template kVec<T>>& values, bool stays = false) {
  const auto pack = Pack<T, Tile::template kVec<T>>::from(values);
  stays ? pack.store(row + c) : pack.store_once(row + c);
}

// to = f(an element), for the row x.
template <class Tile, class T, class X, class F>
__device__ __forceinline__ void map_row(const Columns<Tile, T>& columns, const X& x, T* to, F&& f) {
  const auto mapped = [&](int c, int v) {
    const auto value = x(c, v);
    return floats<Tile::template kVec<T>>([&](int j) { return f(value[j]); });
  };
  columns.each([&](int c, int v) { store<Tile>(to, c, mapped(c, v)); });
}

}  // namespace tc::cuda
