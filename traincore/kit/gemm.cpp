#include "traincore/gemm.h"

#include "traincore/kit/call.h"
#include "traincore/ops/gemm/gemm.h"
#include "traincore/ops/gemm_i8/gemm_i8.h"

namespace tc::kit {
namespace {

static_assert(sizeof(tc_gemm_desc) == 52 && offsetof(tc_gemm_desc, M) == 0 && offsetof(tc_gemm_desc, N) == 4 &&
              offsetof(tc_gemm_desc, K) == 8 && offsetof(tc_gemm_desc, a_dtype) == 12 &&
              offsetof(tc_gemm_desc, b_dtype) == 16 && offsetof(tc_gemm_desc, c_dtype) == 20 &&
              offsetof(tc_gemm_desc, accum_dtype) == 24 && offsetof(tc_gemm_desc, transpose_a) == 28 &&
              offsetof(tc_gemm_desc, transpose_b) == 29 && offsetof(tc_gemm_desc, alpha) == 32 &&
              offsetof(tc_gemm_desc, beta) == 36 && offsetof(tc_gemm_desc, lda) == 40 &&
              offsetof(tc_gemm_desc, ldb) == 44 && offsetof(tc_gemm_desc, ldc) == 48);
static_assert(sizeof(tc_gemm_batched_desc) == 80 && offsetof(tc_gemm_batched_desc, batch) == 52 &&
              offsetof(tc_gemm_batched_desc, stride_a) == 56 && offsetof(tc_gemm_batched_desc, stride_b) == 64 &&
              offsetof(tc_gemm_batched_desc, stride_c) == 72);

struct Operands {
  const tc_buffer *a, *b, *c;
};
struct Epilogue {
  const tc_buffer* bias;
  int32_t activation;
};

void require_dtypes(const Call& call, const tc_gemm_desc& d, bool has_bias) {
  const int32_t a = d.a_dtype;
  const bool half = a == TC_DTYPE_F16 || a == TC_DTYPE_BF16;
  const bool floats = d.accum_dtype == TC_DTYPE_F32 && ((half && (d.c_dtype == a || d.c_dtype == TC_DTYPE_F32)) ||
                                                        (a == TC_DTYPE_F32 && d.c_dtype == a));
  const bool integers = a == TC_DTYPE_I8 && d.c_dtype == TC_DTYPE_I32 && d.accum_dtype == TC_DTYPE_I32 && !has_bias;
  if (d.b_dtype != a || !(floats || integers))
    fail(TC_ERR_UNSUPPORTED_DTYPE,
         "{}: a is {}, b {}, c {}, accum {}; served are a = b = f16 or bf16 with c alike or f32, f32 with c f32, all "
         "with accum f32{}",
         call.name(), tc_dtype_name(a), tc_dtype_name(d.b_dtype), tc_dtype_name(d.c_dtype),
         tc_dtype_name(d.accum_dtype), has_bias ? "" : ", and i8 with c and accum i32");
}

// [batch, rows, cols] with rows `ld` apart, 0 meaning dense.
tc_tensor matrices(const Call& call, const char* name, const tc_buffer* buffer, int32_t dtype, int64_t batch,
                   int64_t batch_stride, int64_t rows, int64_t cols, int64_t ld) {
  require(ld == 0 || ld >= cols, "{}: the leading dimension of {} is {}, but its rows have {} elements", call.name(),
          name, ld, cols);
  return call.tensor(name, buffer, dtype, {batch, rows, cols}, {batch_stride, ld ? ld : cols, 1});
}

// The fields that gemm and gemm_i8 have in common.
template <class A>
A product(const Call& call, const tc_gemm_batched_desc& d, const Operands& o, A args) {
  const tc_gemm_desc& g = d.base;
  const int64_t m = g.M, n = g.N, k = g.K;
  args.transpose_a = g.transpose_a;
  args.transpose_b = g.transpose_b;
  args.a =
      matrices(call, "A", o.a, g.a_dtype, d.batch, d.stride_a, g.transpose_a ? k : m, g.transpose_a ? m : k, g.lda);
  args.b =
      matrices(call, "B", o.b, g.b_dtype, d.batch, d.stride_b, g.transpose_b ? n : k, g.transpose_b ? k : n, g.ldb);
  args.c = matrices(call, "C", o.c, g.c_dtype, d.batch, d.stride_c, m, n, g.ldc);
  args.alpha = g.alpha;
  args.beta = g.beta;
  return args;
}

void add_product(Call& call, const tc_gemm_batched_desc& d, const Operands& o, const Epilogue* epilogue) {
  const tc_gemm_desc& g = d.base;
  call.require_positive({{"M", g.M}, {"N", g.N}, {"batch", d.batch}});
  require(g.K >= 0, "{}: K is {}, but must be >= 0", call.name(), g.K);
  require(g.lda >= 0 && g.ldb >= 0 && g.ldc >= 0, "{}: lda is {}, ldb {} and ldc {}, but none may be negative",
          call.name(), g.lda, g.ldb, g.ldc);
  require(d.stride_a >= 0 && d.stride_b >= 0 && d.stride_c >= 0,
          "{}: stride_a is {}, stride_b {} and stride_c {}, but none may be negative", call.name(), d.stride_a,
          d.stride_b, d.stride_c);
  require_dtypes(call, g, epilogue != nullptr);
  if (g.a_dtype == TC_DTYPE_I8) {
    call.add(tcx_gemm_i8, tcx_gemm_i8_workspace, product(call, d, o, tcx_gemm_i8_args_default()));
  } else {
    auto args = product(call, d, o, tcx_gemm_forward_args_default());
    if (epilogue) {
      args.bias = call.tensor("bias", epilogue->bias, g.c_dtype, {g.N});
      args.activation = epilogue->activation;
    }
    call.add(tcx_gemm_forward, tcx_gemm_forward_workspace, args);
  }
}

tc_status_t run(const char* name, const tc_context* ctx, const tc_gemm_batched_desc* desc, const Operands& operands,
                const Epilogue* epilogue, const tc_stream* stream) {
  return call(
      name, ctx, {operands.a, operands.b, operands.c, epilogue ? epilogue->bias : nullptr},
      [&](Call& call) {
        require(desc != nullptr, "{}: desc is NULL", name);
        add_product(call, *desc, operands, epilogue);
      },
      stream);
}

tc_status_t run_one(const char* name, const tc_context* ctx, const tc_gemm_desc* desc, const Operands& operands,
                    const Epilogue* epilogue = nullptr, const tc_stream* stream = nullptr) {
  const tc_gemm_batched_desc batch{desc ? *desc : tc_gemm_desc{}, 1, 0, 0, 0};
  return run(name, ctx, desc ? &batch : nullptr, operands, epilogue, stream);
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace

tc_status_t tc_gemm(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B, tc_buffer* C) {
  return run_one("tc_gemm", ctx, desc, {A, B, C});
}

tc_status_t tc_gemm_async(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B,
                          tc_buffer* C, tc_stream* stream) {
  return run_one("tc_gemm_async", ctx, desc, {A, B, C}, nullptr, stream);
}

tc_status_t tc_gemm_batched(tc_context* ctx, const tc_gemm_batched_desc* desc, const tc_buffer* A, const tc_buffer* B,
                            tc_buffer* C) {
  return run("tc_gemm_batched", ctx, desc, {A, B, C}, nullptr, nullptr);
}

tc_status_t tc_gemm_bias(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B,
                         const tc_buffer* bias, tc_activation_t activation, tc_buffer* C) {
  const Epilogue epilogue{bias, activation};
  return run_one("tc_gemm_bias", ctx, desc, {A, B, C}, &epilogue);
}
