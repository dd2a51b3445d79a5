// CPU kernels of the rotation: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/rope/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/streaming.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rope/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::rope::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr int64_t kPairs = 128;      // turned at a time
constexpr int64_t kAngles = 8192;    // cosines, and as many sines, that are held while all heads turn: 64 KB
constexpr int64_t kPositions = 128;  // of a block, fewer where there are few: 64 KB of a head that follow each other

struct Rotation {
  int32_t pairing;
  float direction;  // 1, or -1 for the transpose
  tc_tensor cos, sin, positions;
};

// Pieces of some rows of the tables in f32, as the kernels below read them. Interleaved pairs have their angle twice,
// with the sign that their place gives the sine.
class Angles {
 public:
  struct Row {
    float *cos, *sin;
  };
  Angles(const Rotation& turn, int64_t half)
      : turn_(turn),
        width_(std::min(half, kPairs) * (turn.pairing == TC_ROPE_HALF ? 1 : 2)),
        count_(std::max<int64_t>(kAngles / std::max<int64_t>(width_, 1), 1)),
        memory_(static_cast<size_t>(2 * width_ * count_) * sizeof(float)) {}
  int64_t count() const { return count_; }
  Row operator[](int64_t i) const {
    float* const cos = static_cast<float*>(memory_.data()) + 2 * i * width_;
    return {cos, cos + width_};
  }
  void load(int64_t i, const void* cos_row, const void* sin_row, int64_t pairs) const {
    const auto [cos, sin] = (*this)[i];
    widen(turn_.cos.dtype, cos_row, pairs, cos);
    widen(turn_.sin.dtype, sin_row, pairs, sin);
    for (int64_t p = 0; p < pairs; ++p) sin[p] *= turn_.direction;
    if (turn_.pairing == TC_ROPE_HALF) return;
    for (int64_t p = pairs - 1; p >= 0; --p) {
      cos[2 * p] = cos[2 * p + 1] = cos[p];
      sin[2 * p + 1] = sin[p];
      sin[2 * p] = -sin[2 * p + 1];
    }
  }

 private:
  const Rotation& turn_;
  int64_t width_, count_;
  ThreadScratch memory_;
};

// n pairs from pair `first` on of one row; y may be x.
template <class T>
HWY_INLINE void turn_halves(Angles::Row angles, int64_t half, int64_t first, int64_t n, const T* x, T* y,
                            bool streamed) {
  const T *const x1 = x + first, *const x2 = x1 + half;
  T* const y1 = y + first;
  map_row<2, T>(0, n, {y1, y1 + half}, streamed, [=](auto at) HWY_ATTR {
    const V v1 = at.load(x1), v2 = at.load(x2), cos = at.load(angles.cos), sin = at.load(angles.sin);
    return std::array<V, 2>{hn::NegMulAdd(v2, sin, hn::Mul(v1, cos)), hn::MulAdd(v1, sin, hn::Mul(v2, cos))};
  });
}
template <class T>
HWY_INLINE void turn_interleaved(Angles::Row angles, int64_t first, int64_t n, const T* x, T* y, bool streamed) {
  const T* const x1 = x + 2 * first;
  T* const y1 = y + 2 * first;
  const bool in_pairs = elements_to_boundary(y1) % 2 == 0;  // else vectors that start on a boundary would part them
  map_row(0, 2 * n, y1, streamed && in_pairs, [=](auto at) HWY_ATTR {
    const V v = at.load(x1), partner = hn::Reverse2(F32(), v);
    return hn::MulAdd(partner, at.load(angles.sin), hn::Mul(v, at.load(angles.cos)));
  });
}

// One of q and k, on its way in and out; no heads where it is absent.
template <class T>
struct Side {
  Heads<const T> in;
  Heads<T> out;
  bool streamed;
  Side(const tc_tensor& from, const tc_tensor& to) : in(from), out(to), streamed(given(to) && streams(to, {&from})) {}
};

// Pairs [first, first + n) of a table row, and the elements beyond all pairs.
struct Piece {
  int32_t pairing;
  int64_t half, first, n;
};
template <class T>
void turn_row(const Piece& piece, Angles::Row angles, const Side<T>& side, int64_t b, int64_t head, int64_t s) {
  const T* const x = side.in.at(b, head, s);
  T* const y = side.out.at(b, head, s);
  if (piece.pairing == TC_ROPE_HALF)
    turn_halves(angles, piece.half, piece.first, piece.n, x, y, side.streamed);
  else
    turn_interleaved(angles, piece.first, piece.n, x, y, side.streamed);
  const int64_t rest = side.in.dim - 2 * piece.half;
  if (piece.first == 0 && rest > 0 && x != y)
    std::memcpy(y + 2 * piece.half, x + 2 * piece.half, static_cast<size_t>(rest) * sizeof(T));
}

// All heads of one side at `count` positions of sequence b from s on, in the order of memory.
template <class T>
void turn_heads(const Piece& piece, const Angles& angles, const Side<T>& side, int64_t b, int64_t s, int64_t count) {
  if (side.out.head_stride < side.out.seq_stride) {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t head = 0; head < side.out.heads; ++head) turn_row(piece, angles[i], side, b, head, s + i);
  } else {
    for (int64_t head = 0; head < side.out.heads; ++head)
      for (int64_t i = 0; i < count; ++i) turn_row(piece, angles[i], side, b, head, s + i);
  }
}

// Blocks of positions, so that a row of the tables is read once for all heads of q and k, in either memory order.
template <class T>
void turn_sides(const Rotation& turn, const Side<T>& q, const Side<T>& k, const tc_exec& exec) {
  const AnyRows cos(turn.cos), sin(turn.sin);
  const int64_t seq = q.in.seq, half = cos.cols();
  const int64_t rows = q.in.batch.count * seq;
  const TableRow table_row(turn.cos, turn.positions, seq);
  const int64_t block = std::clamp<int64_t>(rows / 64, 8, kPositions);
  parallel_blocks(rows, block, exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const Angles angles(turn, half);
    for (int64_t r = begin, count; r < end; r += count) {
      const int64_t b = r / seq, s = r % seq;
      count = std::min({angles.count(), end - r, seq - s});
      for (int64_t first = 0; first < half; first += kPairs) {
        const Piece piece{turn.pairing, half, first, std::min(kPairs, half - first)};
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = table_row(b, s + i);
          angles.load(i, cos.at(row, first), sin.at(row, first), piece.n);
        }
        for (const Side<T>* side : {&q, &k}) turn_heads(piece, angles, *side, b, s, count);
      }
    }
  });
}

void forward(const tcx_rope_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.q.dtype, [&]<class T>() {
    turn_sides<T>({a.pairing, 1, a.cos, a.sin, a.positions}, {a.q, a.q_out}, {a.k, a.k_out}, exec);
  });
}
void backward(const tcx_rope_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    turn_sides<T>({a.pairing, -1, a.cos, a.sin, a.positions}, {a.dq_out, a.dq}, {a.dk_out, a.dk}, exec);
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
