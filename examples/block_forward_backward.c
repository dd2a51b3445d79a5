/* A Llama-style block in f16, forward and backward, held against the same block in float64: the output directly, each
 * gradient by the slope of the float64 block along a random direction.
 *   cc block_forward_backward.c $(pkg-config --cflags --libs traincore) -lm -o block && ./block */
#include "llama_block.h"

static uint32_t seed = 7;
static double uniform(void) { /* in [-1, 1) */
  seed = seed * 1664525u + 1013904223u;
  return (int32_t)seed / 2147483648.0;
}

/* f16 from a number of at most 11 bits in [2^-14, 65504], and back: enough for what this program makes up itself. */
static uint16_t to_f16(double value) {
  int exponent;
  const double mantissa = frexp(fabs(value), &exponent); /* in [0.5, 1) */
  if (value == 0) return 0;
  return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | ((int)(mantissa * 2048) & 0x3ff));
}
static double from_f16(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  const double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return h & 0x8000 ? -value : value;
}
static void fill(tc_buffer* b, int n, double scale, double mean) {
  uint16_t* const p = map(b);
  for (int i = 0; i < n; ++i) p[i] = to_f16(mean + round(scale * uniform() * 1024) / 1024);
}

static double* zeros(int n) {
  double* p = calloc((size_t)n, sizeof *p);
  if (!p) exit(1);
  return p;
}
static double* read_half(tc_buffer* b, int n) {
  const uint16_t* const p = map(b);
  double* const values = zeros(n);
  for (int i = 0; i < n; ++i) values[i] = from_f16(p[i]);
  return values;
}

/* The block in float64. w: norm1 qkv out norm2 gate up down, and last the input. */
enum { kInput = kParams, kTensors = kParams + 1 };
static void norm64(const double* x, const double* gamma, double* y) {
  for (int t = 0; t < kTokens; ++t) {
    double squares = 0;
    for (int d = 0; d < kDim; ++d) squares += x[t * kDim + d] * x[t * kDim + d];
    const double r = 1 / sqrt(squares / kDim + (double)kEps);
    for (int d = 0; d < kDim; ++d) y[t * kDim + d] = x[t * kDim + d] * r * gamma[d];
  }
}
static void linear64(const double* x, const double* w, double* y, int n, int k) {
  for (int t = 0; t < kTokens; ++t)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int i = 0; i < k; ++i) sum += x[t * k + i] * w[i * n + j];
      y[t * n + j] = sum;
    }
}
static void rope64(double* head, int s) {
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const double angle = s * pow(10000, -2.0 * i / kHeadDim), a = head[i], b = head[i + kHeadDim / 2];
    head[i] = a * cos(angle) - b * sin(angle);
    head[i + kHeadDim / 2] = b * cos(angle) + a * sin(angle);
  }
}
/* One query head of one token; packed holds q, k and v of all tokens, turned. */
static void attend64(const double* packed, int batch, int s, int h, double* out) {
  const int kv = kHeads + h / (kHeads / kKvHeads);
  const double* const q = packed + (batch * kSeq + s) * kPacked + h * kHeadDim;
  double weights[kSeq], sum = 0;
  for (int j = 0; j <= s; ++j) {
    const double* const k = packed + (batch * kSeq + j) * kPacked + kv * kHeadDim;
    double dot = 0;
    for (int d = 0; d < kHeadDim; ++d) dot += q[d] * k[d];
    sum += weights[j] = exp(dot / sqrt(kHeadDim));
  }
  for (int j = 0; j <= s; ++j)
    for (int d = 0; d < kHeadDim; ++d)
      out[d] += weights[j] / sum * packed[(batch * kSeq + j) * kPacked + (kv + kKvHeads) * kHeadDim + d];
}
static double* block64(double* const w[kTensors]) {
  double *h = zeros(kTokens * kDim), *packed = zeros(kTokens * kPacked), *o = zeros(kTokens * kHeads * kHeadDim),
         *x2 = zeros(kTokens * kDim), *g = zeros(kTokens * kHidden), *u = zeros(kTokens * kHidden),
         *y = zeros(kTokens * kDim);
  norm64(w[kInput], w[0], h);
  linear64(h, w[1], packed, kPacked, kDim);
  for (int t = 0; t < kTokens; ++t)
    for (int head = 0; head < kHeads + kKvHeads; ++head) rope64(packed + t * kPacked + head * kHeadDim, t % kSeq);
  for (int t = 0; t < kTokens; ++t)
    for (int head = 0; head < kHeads; ++head)
      attend64(packed, t / kSeq, t % kSeq, head, o + (t * kHeads + head) * kHeadDim);
  linear64(o, w[2], x2, kDim, kHeads * kHeadDim);
  for (int i = 0; i < kTokens * kDim; ++i) x2[i] += w[kInput][i];
  norm64(x2, w[3], h);
  linear64(h, w[4], g, kHidden, kDim);
  linear64(h, w[5], u, kHidden, kDim);
  for (int i = 0; i < kTokens * kHidden; ++i) g[i] *= u[i] / (1 + exp(-g[i]));
  linear64(g, w[6], y, kDim, kHidden);
  for (int i = 0; i < kTokens * kDim; ++i) y[i] += x2[i];
  free(h), free(packed), free(o), free(x2), free(g), free(u);
  return y;
}

/* sum(y dy): what the gradients are gradients of. */
static double loss64(double* const w[kTensors], const double* dy) {
  double* const y = block64(w);
  double sum = 0;
  for (int i = 0; i < kTokens * kDim; ++i) sum += y[i] * dy[i];
  free(y);
  return sum;
}

/* How far the slope of tensor i along a random direction is from what its gradient says, as a share of its norm. */
static double gradient_error(double* const w[kTensors], int i, int n, const double* gradient, const double* dy) {
  const double step = 1e-5;
  double* const direction = zeros(n);
  double told = 0, norm = 0;
  for (int e = 0; e < n; ++e) {
    direction[e] = uniform();
    told += gradient[e] * direction[e];
    norm += gradient[e] * gradient[e];
  }
  for (int e = 0; e < n; ++e) w[i][e] += step * direction[e];
  const double above = loss64(w, dy);
  for (int e = 0; e < n; ++e) w[i][e] -= 2 * step * direction[e];
  const double below = loss64(w, dy);
  for (int e = 0; e < n; ++e) w[i][e] += step * direction[e];
  free(direction);
  return fabs((above - below) / (2 * step) - told) / sqrt(norm);
}

int main(void) {
  static const char* const names[kTensors] = {"norm1", "qkv", "out", "norm2", "gate", "up", "down", "x"};
  const int n = kTokens * kDim;
  tc_context* ctx = NULL;
  MUST(tc_init(&ctx));
  tc_buffer *x = half_buffer(ctx, n), *dy_half = half_buffer(ctx, n);
  fill(x, n, 1, 0);
  fill(dy_half, n, 1, 0);
  Block b = block_of(ctx, TC_DTYPE_F16, x);
  Param* list[kParams];
  block_params(&b, list);
  for (int i = 0; i < kParams; ++i) fill(list[i]->w, list[i]->n, 0.25, list[i]->n == kDim ? 1 : 0);
  block_forward(ctx, &b);
  block_backward(ctx, &b, dy_half);

  double* w[kTensors];
  for (int i = 0; i < kParams; ++i) w[i] = read_half(list[i]->w, list[i]->n);
  w[kInput] = read_half(x, n);
  double *dy = read_half(dy_half, n), *y = read_half(b.y, n), *want = block64(w), *dx = read_half(b.dx, n);
  double error = 0, size = 0, worst;
  for (int i = 0; i < n; ++i) error += (y[i] - want[i]) * (y[i] - want[i]), size += want[i] * want[i];
  worst = sqrt(error / size);
  printf("forward   y      off by %.1e (rms, scaled)\n", worst);
  for (int i = 0; i < kTensors; ++i) {
    const int count = i < kParams ? list[i]->n : n;
    double* const gradient = i < kParams ? zeros(count) : dx;
    for (int e = 0; i < kParams && e < count; ++e) gradient[e] = (double)((const float*)map(list[i]->grad))[e];
    error = gradient_error(w, i, count, gradient, dy);
    printf("backward  d%-5s off by %.1e\n", names[i], error);
    worst = fmax(worst, error);
    free(gradient);
  }
  for (int i = 0; i < kTensors; ++i) free(w[i]);
  free(dy), free(y), free(want);
  MUST(tc_shutdown(ctx));
  printf("%s\n", worst < 4e-3 ? "the block agrees with float64" : "the block DISAGREES with float64");
  return worst < 4e-3 ? 0 : 1;
}
