// Device code: rows in turn whose elements a thread holds in registers, as f32, from its look at a row until it writes
// it, and rows that start at any address: 16-byte accesses between memory and shared memory, four bytes at a time from there.
#pragma once
#include <type_traits>

#include "traincore/cuda/rows_ahead.cuh"

namespace tc::cuda {

// An element of a row that is not made as the rest is; -1: there is none.
struct Patch {
  int column = -1;
  float value = 0;
};

// The columns of a row that starts at any address. Every warp has a run of them, which its lanes take in turn, four bytes
// each: which these are does not depend on the address, so no sum over them does.
template <class Tile, class T>
struct RunColumns {
  static constexpr int kVec = 4 / int(sizeof(T)), kVectors = Tile::kVectors / kVec;
  static constexpr int kLine = 32 * kVec;
  int cols, begin, length, lane;  // of the row; the run; of the warp
  __device__ __forceinline__ RunColumns(const typename Tile::Group& group, int64_t cols_)
      : cols(int(cols_)), lane(group.lane() % 32) {
    const int warps = group.size() / 32, most = (cols + warps * kLine - 1) / (warps * kLine) * kLine;
    begin = min(group.lane() / 32 * most, cols);
    length = min(cols - begin, most);
  }
  // Whether element j of the vector at column c is one of the run.
  __device__ __forceinline__ bool in_row(int c, int j) const { return c + j < begin + length; }
  __device__ __forceinline__ int count_in_warp() const { return length; }
  // f(first column, which of this thread's vectors) for every vector that a thread may have, in the run or shortly past it.
  template <class F>
  __device__ __forceinline__ void all(F&& f) const {
    by_group([&](int first) { group(first, f); });
  }
  // The same, as f.operator()<whether all of it is in the run>().
  template <class F>
  __device__ __forceinline__ void look(F&& f) const {
    by_group([&](int first) {
      if ((first + kAtOnce) * kLine <= length)
        group(first, [&](int c, int v) { f.template operator()<true>(c, v); });
      else
        group(first, [&](int c, int v) { f.template operator()<false>(c, v); });
    });
  }

 private:
  static constexpr int kAtOnce = 8 / kVec;
  template <class F>
  __device__ __forceinline__ void by_group(F&& f) const {
#pragma unroll
    for (int first = 0; first < kVectors; first += kAtOnce)
      if (first * kLine < length) f(first);
  }
  template <class F>
  __device__ __forceinline__ void group(int first, F&& f) const {
#pragma unroll
    for (int v = first; v < first + kAtOnce; ++v) f(begin + (v * 32 + lane) * kVec, v);
  }
};

// kStages rows of kTensors tensors in shared memory, which start at any address each: the row lies there as far from a
// multiple of 16 bytes as in memory. No byte outside a row is read or written: where a row begins or ends inside a
// vector, its elements there travel singly, and wait in a register for the next load(). Warps do not share memory.
template <class Tile, class T, int kStages_, int kTensors_>
class RowsAnywhere {
 public:
  static constexpr int kStages = kStages_, kTensors = kTensors_;
  static constexpr bool kIsFree = false;  // once it has been looked at: write() needs its place
  using Columns = RunColumns<Tile, T>;
  static constexpr int kVec = Columns::kVec;
  // Past the end of the row all elements are `past`.
  __device__ __forceinline__ RowsAnywhere(const Columns&, float past)
      : past_(Pack<T, kVec>::from(floats<kVec>([past](int) { return past; }))) {
    extern __shared__ uint4 ahead[];
    runs_ = reinterpret_cast<T*>(ahead) + int(threadIdx.x) / 32 * (kStages * kTensors * kRun);
#pragma unroll
    for (int t = 0; t < kTensors; ++t) waiting_at_[t] = -1;
  }
  // To be called for every row in turn, by whole warps; what one call leaves waiting the next one puts down.
  __device__ __forceinline__ void load(const Columns& columns, int stage, const RowSources<T, kTensors>& from) {
    __syncwarp();  // nobody looks at the last row of this stage any more
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      if (waiting_at_[t] >= 0) runs_[waiting_at_[t]] = waiting_[t];
      waiting_at_[t] = -1;
      if (from.at[t]) load_run(columns, t, place(stage, t), from.at[t] + columns.begin);
    }
  }
  // x.pack<...>(v): the row of tensor t, which came from `from`, as RunColumns::look() asks for it.
  struct Row {
    const uint32_t* mine;
    int odd_bits;  // of the first word that lie before the row
    int left;      // elements from this lane's first to the end of the run
    uint32_t past;
    template <bool kIsInside>
    __device__ __forceinline__ Pack<T, kVec> pack(int v) const {
      uint32_t word = mine[v * 32];
      if constexpr (kVec > 1) word = __funnelshift_r(word, mine[v * 32 + 1], odd_bits);
      if constexpr (!kIsInside) {
        const int here = left - v * Columns::kLine;
        if (here < kVec) word = here > 0 ? (word & 0xffffu) | past << 16 : past;
      }
      return {word};
    }
  };
  __device__ __forceinline__ Row row(const Columns& columns, int stage, int t, const T* from) const {
    const int first = place(stage, t) + phase(from + columns.begin);
    return {reinterpret_cast<const uint32_t*>(runs_) + first / kVec + columns.lane, first % kVec * 16,
            columns.length - columns.lane * kVec, past_.raw};
  }
  // to[c] = f(c, v), by way of the place of the row of tensor 0, which f no longer reads.
  template <class F>
  __device__ __forceinline__ void write(const Columns& columns, int stage, T* to, const Patch& patch, F&& f) const {
    T* const out = to + columns.begin;
    T* const staged = runs_ + place(stage, 0) + phase(out);
    __syncwarp();
    columns.all([&](int c, int v) {
      const auto x = f(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) staged[(v * 32 + columns.lane) * kVec + j] = from_f32<T>(x[j]);
    });
    const int patched = patch.column - columns.begin;
    if (patched >= 0 && patched < columns.length && patched / kVec % 32 == columns.lane)
      staged[patched] = from_f32<T>(patch.value);
    __syncwarp();
    const int head = min((kOfVector - phase(out)) % kOfVector, columns.length);
    const int vectors = (columns.length - head) / kOfVector;
#pragma unroll 4
    for (int i = head + columns.lane * kOfVector; i < head + vectors * kOfVector; i += 32 * kOfVector)
      Pack<T, kOfVector>::load(staged + i).store_once(out + i);
    if (const int i = edge(columns, head, head + vectors * kOfVector); i >= 0) out[i] = staged[i];
  }
  // Where the shared memory of the rows ends.
  __device__ __forceinline__ void* end() const {
    extern __shared__ uint4 ahead[];
    return reinterpret_cast<T*>(ahead) + int(blockDim.x) / 32 * (kStages * kTensors * kRun);
  }

 private:
  static constexpr int kOfVector = kWide<T>;
  static constexpr int kRun = Tile::kVectors * 32 + kOfVector;  // elements that a run may take
  static __device__ __forceinline__ int phase(const T* p) {
    return int(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
  }
  static __device__ __forceinline__ int place(int stage, int t) { return (stage * kTensors + t) * kRun; }
  // The element of the run that this lane has of those before `head` and of those from `tail` on, or -1.
  static __device__ __forceinline__ int edge(const Columns& columns, int head, int tail) {
    const int i = columns.lane < 16 ? columns.lane : tail + columns.lane - 16;
    return i < (columns.lane < 16 ? head : columns.length) ? i : -1;
  }
  __device__ __forceinline__ void load_run(const Columns& columns, int t, int at, const T* from) {
    // Of the vectors that the run touches, those inside the row.
    const int before = phase(from), left = columns.cols - columns.begin;
    const int low = columns.begin == 0 && before > 0 ? 1 : 0;
    const int high = min((before + columns.length + kOfVector - 1) / kOfVector, (before + left) / kOfVector);
#pragma unroll 4
    for (int k = low + columns.lane; k < high; k += 32)
      __pipeline_memcpy_async(runs_ + at + k * kOfVector, from - before + k * kOfVector, 16);
    const int head = low ? min(kOfVector - before, columns.length) : 0;
    if (const int i = edge(columns, head, (high > low ? high : low) * kOfVector - before); i >= 0) {
      waiting_[t] = from[i];
      waiting_at_[t] = at + before + i;
    }
  }
  T* runs_;  // this warp's
  Pack<T, kVec> past_;
  T waiting_[kTensors];
  int waiting_at_[kTensors];
};

// The same of rows that 16-byte accesses fit.
template <class Tile, class T, int kStages_, int kTensors_>
class RowsAligned : public RowsAhead<Tile, T, kStages_, kTensors_> {
 public:
  using Base = RowsAhead<Tile, T, kStages_, kTensors_>;
  using Columns = cuda::Columns<Tile, T>;
  static constexpr bool kIsFree = true;
  __device__ __forceinline__ RowsAligned(const Columns& columns, float past) : Base(columns, past, false) {}
  struct Row {
    typename Base::Row row;
    template <bool kIsInside>
    __device__ __forceinline__ auto pack(int v) const {
      return row.pack(v);
    }
  };
  __device__ __forceinline__ Row row(const Columns&, int stage, int t, const T*) const { return {Base::row(stage, t)}; }
  template <class F>
  __device__ __forceinline__ void write(const Columns& columns, int, T* to, const Patch& patch, F&& f) const {
    columns.all([&](int c, int v) { Pack<T, Base::kVec>::from(f(c, v)).store_once_if(c < columns.cols, to + c); });
    if (patch.column >= 0 && columns.has(patch.column))  // after its vector, which the same thread wrote
      to[patch.column] = from_f32<T>(patch.value);
  }
};

template <class Tile, class T, int kStages, int kTensors>
using HeldRows = std::conditional_t<Tile::template kVec<T> == 1, RowsAnywhere<Tile, T, kStages, kTensors>,
                                    RowsAligned<Tile, T, kStages, kTensors>>;

// The group's rows in turn, as for_rows_ahead() has them, but each is written before the next one is looked at: what
// look() holds of a row in registers is there for write(). Where two blocks share an SM, they fill each other's waits.
template <class Rows, class AllReduce, class Sources, class Look, class Merge, class Write>
__device__ __forceinline__ void for_rows_held(const Turns& turns, const typename Rows::Columns& columns, Rows& rows,
                                              AllReduce& known, Sources&& sources, Look&& look, Merge&& merge,
                                              Write&& write) {
  constexpr int kStages = Rows::kStages;
  const auto fetch = [&](int turn, int stage) {
    rows.load(columns, stage, turn < turns.count ? sources(turn) : decltype(sources(turn)){});
    __pipeline_commit();
  };
#pragma unroll 1
  for (int s = 0; s < kStages; ++s) fetch(s, s);
  int stage = 0;
#pragma unroll 1
  for (int turn = 0; turn < turns.count; ++turn) {
    __pipeline_wait_prior(kStages - 1);
    if constexpr (!Rows::kIsFree) __syncwarp();  // what other lanes loaded is there
    known.put(look(turn, stage));
    if constexpr (Rows::kIsFree) fetch(turn + kStages, stage);
    known.take();
    write(turn, stage, merge(known));
    if constexpr (!Rows::kIsFree) fetch(turn + kStages, stage);
    stage = stage + 1 < kStages ? stage + 1 : 0;
  }
}

}  // namespace tc::cuda
