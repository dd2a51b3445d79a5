// RMSNorm, LayerNorm, and a norm with the product that reads it.
#include "traincore/kit/call.h"
#include "traincore/kit/training_dtype.h"
#include "traincore/ops/layernorm/layernorm.h"
#include "traincore/ops/norm_gemv/norm_gemv.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"
#include "traincore/training.h"

namespace tc::kit {
namespace {

struct NormGemv {
  const tc_buffer *x, *gamma, *beta, *w;
  tc_buffer* y;
  int m, n, k;
  float eps;
};

tc_status_t norm_gemv(const char* name, tc_context* ctx, int32_t norm, const NormGemv& g) {
  return call(name, ctx, {g.x, g.gamma, g.beta, g.w, g.y}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"M", g.m}, {"N", g.n}, {"K", g.k}});
    tcx_norm_gemv_args a = tcx_norm_gemv_args_default();
    a.norm = norm;
    a.x = call.tensor("X", g.x, dtype, {g.m, g.k});
    a.weight = call.tensor("gamma", g.gamma, dtype, {g.k});
    if (norm == TC_NORM_LAYER) a.bias = call.tensor("beta", g.beta, dtype, {g.k});
    a.w = call.tensor("W", g.w, dtype, {g.k, g.n});
    a.y = call.tensor("Y", g.y, dtype, {g.m, g.n});
    a.eps = g.eps;
    call.add(tcx_norm_gemv, tcx_norm_gemv_workspace, a);
  });
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace

tc_status_t tc_rmsnorm_forward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, tc_buffer* Y,
                               tc_buffer* rstd_out, int N, int D, float eps) {
  return call("tc_rmsnorm_forward", ctx, {X, gamma, Y, rstd_out}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"N", N}, {"D", D}});
    tcx_rmsnorm_forward_args a = tcx_rmsnorm_forward_args_default();
    a.x = call.tensor("X", X, dtype, {N, D});
    a.weight = call.tensor("gamma", gamma, dtype, {D});
    a.y = call.tensor("Y", Y, dtype, {N, D});
    a.rstd = call.tensor("rstd_out", rstd_out, TC_DTYPE_F32, {N});
    a.eps = eps;
    call.add(tcx_rmsnorm_forward, tcx_rmsnorm_forward_workspace, a);
  });
}

tc_status_t tc_rmsnorm_backward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* dY,
                                const tc_buffer* rstd, tc_buffer* dX, tc_buffer* dgamma, int N, int D) {
  return call("tc_rmsnorm_backward", ctx, {X, gamma, dY, rstd, dX, dgamma}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"N", N}, {"D", D}});
    tcx_rmsnorm_backward_args a = tcx_rmsnorm_backward_args_default();
    a.x = call.tensor("X", X, dtype, {N, D});
    a.weight = call.tensor("gamma", gamma, dtype, {D});
    a.dy = call.tensor("dY", dY, dtype, {N, D});
    a.rstd = call.tensor("rstd", rstd, TC_DTYPE_F32, {N});
    a.dx = call.tensor("dX", dX, dtype, {N, D});
    a.dweight = call.tensor("dgamma", dgamma, TC_DTYPE_F32, {D});
    call.add(tcx_rmsnorm_backward, tcx_rmsnorm_backward_workspace, a);
  });
}

tc_status_t tc_layernorm_forward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* beta,
                                 tc_buffer* Y, tc_buffer* mean_out, tc_buffer* rstd_out, int N, int D, float eps) {
  return call("tc_layernorm_forward", ctx, {X, gamma, beta, Y, mean_out, rstd_out}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"N", N}, {"D", D}});
    tcx_layernorm_forward_args a = tcx_layernorm_forward_args_default();
    a.x = call.tensor("X", X, dtype, {N, D});
    a.weight = call.tensor("gamma", gamma, dtype, {D});
    a.bias = call.tensor("beta", beta, dtype, {D});
    a.y = call.tensor("Y", Y, dtype, {N, D});
    a.mean = call.tensor("mean_out", mean_out, TC_DTYPE_F32, {N});
    a.rstd = call.tensor("rstd_out", rstd_out, TC_DTYPE_F32, {N});
    a.eps = eps;
    call.add(tcx_layernorm_forward, tcx_layernorm_forward_workspace, a);
  });
}

tc_status_t tc_layernorm_backward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* dY,
                                  const tc_buffer* mean, const tc_buffer* rstd, tc_buffer* dX, int N, int D) {
  return call("tc_layernorm_backward", ctx, {X, gamma, dY, mean, rstd, dX}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"N", N}, {"D", D}});
    tcx_layernorm_backward_args a = tcx_layernorm_backward_args_default();
    a.x = call.tensor("X", X, dtype, {N, D});
    a.weight = call.tensor("gamma", gamma, dtype, {D});
    a.dy = call.tensor("dY", dY, dtype, {N, D});
    a.mean = call.tensor("mean", mean, TC_DTYPE_F32, {N});
    a.rstd = call.tensor("rstd", rstd, TC_DTYPE_F32, {N});
    a.dx = call.tensor("dX", dX, dtype, {N, D});
    call.add(tcx_layernorm_backward, tcx_layernorm_backward_workspace, a);
  });
}

tc_status_t tc_layernorm_backward_params(tc_context* ctx, const tc_buffer* X, const tc_buffer* dY,
                                         const tc_buffer* mean, const tc_buffer* rstd, tc_buffer* dgamma,
                                         tc_buffer* dbeta, int N, int D) {
  return call("tc_layernorm_backward_params", ctx, {X, dY, mean, rstd, dgamma, dbeta}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"N", N}, {"D", D}});
    tcx_layernorm_backward_args a = tcx_layernorm_backward_args_default();
    a.x = call.tensor("X", X, dtype, {N, D});
    a.dy = call.tensor("dY", dY, dtype, {N, D});
    a.mean = call.tensor("mean", mean, TC_DTYPE_F32, {N});
    a.rstd = call.tensor("rstd", rstd, TC_DTYPE_F32, {N});
    a.dweight = call.tensor("dgamma", dgamma, TC_DTYPE_F32, {D});
    a.dbias = call.tensor("dbeta", dbeta, TC_DTYPE_F32, {D});
    call.add(tcx_layernorm_backward, tcx_layernorm_backward_workspace, a);
  });
}

tc_status_t tc_fused_rmsnorm_gemv(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* W,
                                  tc_buffer* Y, int M, int N, int K, float eps) {
  return norm_gemv("tc_fused_rmsnorm_gemv", ctx, TC_NORM_RMS, {X, gamma, nullptr, W, Y, M, N, K, eps});
}

tc_status_t tc_fused_layernorm_gemv(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* beta,
                                    const tc_buffer* W, tc_buffer* Y, int M, int N, int K, float eps) {
  return norm_gemv("tc_fused_layernorm_gemv", ctx, TC_NORM_LAYER, {X, gamma, beta, W, Y, M, N, K, eps});
}
