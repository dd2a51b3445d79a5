// CPU kernels of the rotation: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/rope/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rope/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::rope::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr int64_t kPositions = 8;  // whose table rows are held while all heads turn
constexpr int64_t kPairs = 128;    // of each, at a time

struct Rotation {
  int32_t pairing;
  float direction;  // 1, or -1 for the transpose
  tc_tensor cos, sin, positions;
};

// A piece of one row of the tables in f32, as the kernels below read it. Interleaved pairs have their angle twice, with
// the sign that their place gives the sine.
struct Angles {
  float cos[2 * kPairs], sin[2 * kPairs];

  void load(const Rotation& turn, const void* cos_row, const void* sin_row, int64_t n) {
    widen(turn.cos.dtype, cos_row, n, cos);
    widen(turn.sin.dtype, sin_row, n, sin);
    for (int64_t i = 0; i < n; ++i) sin[i] *= turn.direction;
    if (turn.pairing == TC_ROPE_HALF) return;
    for (int64_t i = n - 1; i >= 0; --i) {
      cos[2 * i] = cos[2 * i + 1] = cos[i];
      sin[2 * i + 1] = sin[i];
      sin[2 * i] = -sin[2 * i + 1];
    }
  }
};

// n pairs from pair `first` on of one row; y may be x.
template <class T>
HWY_INLINE void turn_halves(const Angles& angles, int64_t half, int64_t first, int64_t n, const T* x, T* y) {
  const T *const x1 = x + first, *const x2 = x1 + half;
  T *const y1 = y + first, *const y2 = y1 + half;
  for_row(n, [&](auto at) HWY_ATTR {
    const V v1 = at.load(x1), v2 = at.load(x2), cos = at.load(angles.cos), sin = at.load(angles.sin);
    at.store(y1, hn::NegMulAdd(v2, sin, hn::Mul(v1, cos)));
    at.store(y2, hn::MulAdd(v1, sin, hn::Mul(v2, cos)));
  });
}
template <class T>
HWY_INLINE void turn_interleaved(const Angles& angles, int64_t first, int64_t n, const T* x, T* y) {
  for_row(2 * n, [&](auto at) HWY_ATTR {
    const V v = at.load(x + 2 * first), partner = hn::Reverse2(F32(), v);
    at.store(y + 2 * first, hn::MulAdd(partner, at.load(angles.sin), hn::Mul(v, at.load(angles.cos))));
  });
}

// One of q and k, on its way in and out; no heads where it is absent.
template <class T>
struct Side {
  Heads<const T> in;
  Heads<T> out;
};

// All heads of one side at `count` positions of sequence b from s on.
template <class T>
void turn_heads(const Side<T>& side, int32_t pairing, const Angles* angles, int64_t half, int64_t first, int64_t n,
                int64_t b, int64_t s, int64_t count) {
  for (int64_t head = 0; head < side.out.heads; ++head)
    for (int64_t i = 0; i < count; ++i) {
      const T* const x = side.in.at(b, head, s + i);
      T* const y = side.out.at(b, head, s + i);
      if (pairing == TC_ROPE_HALF)
        turn_halves(angles[i], half, first, n, x, y);
      else
        turn_interleaved(angles[i], first, n, x, y);
      const int64_t rest = side.in.dim - 2 * half;
      if (first == 0 && rest > 0 && x != y)
        std::memcpy(y + 2 * half, x + 2 * half, static_cast<size_t>(rest) * sizeof(T));
    }
}

// Blocks of positions, so that a row of the tables is read once for all heads of q and k, in either memory order.
template <class T>
void turn_sides(const Rotation& turn, const Side<T>& q, const Side<T>& k, const tc_exec& exec) {
  const AnyRows cos(turn.cos), sin(turn.sin);
  const int64_t seq = q.in.seq, half = cos.cols(), width = (q.out.heads + k.out.heads) * q.in.dim;
  const TableRow table_row(turn.cos, turn.positions, seq);
  parallel_blocks(q.in.batch.count * seq, rows_per_block(width), exec.threads,
                  [&](int64_t begin, int64_t end) HWY_ATTR {
                    Angles angles[kPositions];
                    for (int64_t r = begin, count; r < end; r += count) {
                      const int64_t b = r / seq, s = r % seq;
                      count = std::min({kPositions, end - r, seq - s});
                      for (int64_t first = 0; first < half; first += kPairs) {
                        const int64_t n = std::min(kPairs, half - first);
                        for (int64_t i = 0; i < count; ++i) {
                          const int64_t row = table_row(b, s + i);
                          angles[i].load(turn, cos.at(row, first), sin.at(row, first), n);
                        }
                        for (const Side<T>* side : {&q, &k})
                          turn_heads(*side, turn.pairing, angles, half, first, n, b, s, count);
                      }
                    }
                  });
}

void forward(const tcx_rope_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.q.dtype, [&]<class T>() {
    turn_sides<T>({a.pairing, 1, a.cos, a.sin, a.positions}, {Heads<const T>(a.q), Heads<T>(a.q_out)},
                  {Heads<const T>(a.k), Heads<T>(a.k_out)}, exec);
  });
}
void backward(const tcx_rope_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    turn_sides<T>({a.pairing, -1, a.cos, a.sin, a.positions}, {Heads<const T>(a.dq_out), Heads<T>(a.dq)},
                  {Heads<const T>(a.dk_out), Heads<T>(a.dk)}, exec);
  });
}

}  // namespace
}  // namespace tc::ops::rope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::rope {

void table_gradients_cpu(const tcx_rope_backward_args& a, const tc_exec& exec);

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_rope_forward_args& a, const tc_exec& exec) {
  require_in_table("rope_forward", a.positions, a.cos.shape[0]);
  HWY_DYNAMIC_DISPATCH(forward)(a, exec);
}
void backward_cpu(const tcx_rope_backward_args& a, const tc_exec& exec) {
  require_in_table("rope_backward", a.positions, a.cos.shape[0]);
  if (given(a.dcos) || given(a.dsin)) table_gradients_cpu(a, exec);  // first: dq may be written over dq_out
  if (given(a.dq) || given(a.dk)) HWY_DYNAMIC_DISPATCH(backward)(a, exec);
}

}  // namespace tc::ops::rope
#endif
