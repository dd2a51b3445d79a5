// CPU kernels of gemm: the products are cpu/gemm's; bias and activation meet each tile of C while it is in cache.
// Compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/gemm/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/activation-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/gemm/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::gemm::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

// body(batch) for each product: many are shared out to the threads, few run in turn, each on all threads.
template <class F>
void for_each_product(int64_t count, int threads, F&& body) {
  constexpr int64_t kMany = 16;
  parallel_for(count, count >= kMany ? threads : 1, body);
}

void add_row(const float* from, int64_t n, float* to) {
  for_row(n, [&](auto at) HWY_ATTR { at.store(to, hn::Add(at.load(to), at.load(from))); });
}

// t holds alpha A B + beta C: adds the bias, saves z, applies the activation.
void finish_tile(const tcx_gemm_forward_args& a, int64_t batch, const float* bias, const GemmTile& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    float* const row = t.values + i * t.stride;
    if (bias) add_row(bias + t.col, t.cols, row);
    if (given(a.preactivation)) {
      auto* const z = static_cast<std::byte*>(row_at(a.preactivation, batch, t.row + i));
      narrow(a.preactivation.dtype, row, t.cols,
             z + t.col * static_cast<int64_t>(tc_dtype_size(a.preactivation.dtype)));
    }
    if (a.activation == TC_ACTIVATION_NONE) continue;
    with_activation(a.activation, [&]<class Act>() HWY_ATTR {
      for_row(t.cols, [&](auto at) HWY_ATTR { at.store(row, Act(at.load(row)).value()); });
    });
  }
}

void forward(const tcx_gemm_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const float* const bias = as_f32(a.bias, scratch->bias);
  const bool plain = !bias && !given(a.preactivation) && a.activation == TC_ACTIVATION_NONE;
  for_each_product(batch_in(a.c), exec.threads, [&](int64_t batch) {
    const auto finish = [&](const GemmTile& t) { finish_tile(a, batch, bias, t); };
    const GemmEpilogue epilogue = finish;
    run_gemm({.m = rows_in(a.c),
              .n = cols_in(a.c),
              .k = a.transpose_a ? rows_in(a.a) : cols_in(a.a),
              .a = input_of(a.a, batch, a.transpose_a != 0),
              .b = input_of(a.b, batch, a.transpose_b != 0),
              .c = output_of(a.c, batch),
              .alpha = static_cast<float>(a.alpha),
              .beta = static_cast<float>(a.beta),
              .epilogue = plain ? nullptr : &epilogue},
             exec.threads);
  });
}

// One row of dz = dc activation'(z), in f32.
void gradient_row(const tcx_gemm_backward_args& a, int64_t batch, int64_t row, float* z, float* dz) {
  const int64_t n = cols_in(a.dc);
  widen(a.dc.dtype, row_at(a.dc, batch, row), n, dz);
  if (a.activation == TC_ACTIVATION_NONE) return;
  widen(a.preactivation.dtype, row_at(a.preactivation, batch, row), n, z);
  with_activation(a.activation, [&]<class Act>() HWY_ATTR {
    for_row(n, [&](auto at) HWY_ATTR { at.store(dz, Act(at.load(z)).times_slope(at.load(dz))); });
  });
}

// Fills scratch.dz, where there is an activation, and sums dbias. Rows are cut into kSlabs runs by their number alone;
// a slab sums its rows in order, then slabs are added in order.
void gradient_rows(const tcx_gemm_backward_args& a, const BackwardScratch& scratch, int threads) {
  const int64_t m = rows_in(a.dc), n = cols_in(a.dc), rows = batch_in(a.dc) * m;
  parallel_for(kSlabs, threads, [&](int64_t slab) {
    const ThreadScratch lines(2 * n * sizeof(float));
    float* const z = static_cast<float*>(lines.data());
    float* const sums = scratch.slabs ? scratch.slabs + slab * n : nullptr;
    if (sums) std::fill_n(sums, n, 0.0f);
    for (int64_t r = rows * slab / kSlabs; r < rows * (slab + 1) / kSlabs; ++r) {
      float* const dz = scratch.dz ? scratch.dz + r * n : z + n;
      gradient_row(a, r / m, r % m, z, dz);
      if (sums) add_row(dz, n, sums);
    }
  });
  if (!scratch.slabs) return;
  for (int64_t slab = 1; slab < kSlabs; ++slab) add_row(scratch.slabs + slab * n, n, scratch.slabs);
  store_as(a.dbias, scratch.slabs, a.accumulate != 0);
}

// out = alpha x y + beta out, where out may be stored transposed: (x y)^T = y^T x^T.
struct Gradient {
  const tc_tensor& out;
  bool transposed;
  float alpha, beta;
};
void run_product(const Gradient& g, int64_t batch, const GemmInput& x, const GemmInput& y, int64_t k, int threads) {
  run_gemm({.m = rows_in(g.out),
            .n = cols_in(g.out),
            .k = k,
            .a = g.transposed ? y.transposed() : x,
            .b = g.transposed ? x.transposed() : y,
            .c = output_of(g.out, batch),
            .alpha = g.alpha,
            .beta = g.beta},
           threads);
}

void backward(const tcx_gemm_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  const int64_t m = rows_in(a.dc), n = cols_in(a.dc);
  const bool activated = a.activation != TC_ACTIVATION_NONE;
  if (activated || given(a.dbias)) gradient_rows(a, *scratch, exec.threads);
  const auto alpha = static_cast<float>(a.alpha);
  const Gradient da{a.da, a.transpose_a != 0, alpha, 0}, db{a.db, a.transpose_b != 0, alpha, a.accumulate ? 1.0f : 0};
  for_each_product(batch_in(a.dc), exec.threads, [&](int64_t batch) {
    const GemmInput dz =
        activated ? GemmInput{scratch->dz + batch * m * n, TC_DTYPE_F32, n, 1} : input_of(a.dc, batch, false);
    if (given(a.da)) run_product(da, batch, dz, input_of(a.b, batch, !a.transpose_b), n, exec.threads);
    if (given(a.db)) run_product(db, batch, input_of(a.a, batch, !a.transpose_a), dz, m, exec.threads);
  });
}

}  // namespace
}  // namespace tc::ops::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::gemm {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_gemm_forward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(forward)(a, exec); }
void backward_cpu(const tcx_gemm_backward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(backward)(a, exec); }

}  // namespace tc::ops::gemm
#endif
