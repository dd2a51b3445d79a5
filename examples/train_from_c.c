/* Trains two Llama-style blocks and a head for 100 AdamW steps, in plain C11 on the kit alone:
 *   cc train_from_c.c $(pkg-config --cflags --libs traincore) -lm -o train_from_c && ./train_from_c
 * Everything is bf16; parameters are rounded stochastically, so that small steps are not lost. The task is to learn by
 * heart which of 32 classes each of 64 random tokens belongs to. */
#include "llama_block.h"

enum { kLayers = 2, kClasses = 32, kSteps = 100 };

static uint16_t to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t seed = 1;
static float uniform(void) { /* in [-1, 1) */
  seed = seed * 1664525u + 1013904223u;
  return (float)(int32_t)seed / 2147483648.0f;
}
static void fill(tc_buffer* b, int n, float scale, float mean) {
  uint16_t* const p = map(b);
  for (int i = 0; i < n; ++i) p[i] = to_bf16(mean + scale * uniform());
}

/* The mean loss of a softmax; its probabilities become the gradient of the logits. */
static float cross_entropy(uint16_t* probabilities, const int* classes) {
  float loss = 0;
  for (int t = 0; t < kTokens; ++t) {
    uint16_t* const row = probabilities + t * kClasses;
    loss -= logf(fmaxf(from_bf16(row[classes[t]]), 1e-30f)) / kTokens;
    for (int c = 0; c < kClasses; ++c)
      row[c] = to_bf16((from_bf16(row[c]) - (c == classes[t] ? 1.0f : 0.0f)) / kTokens);
  }
  return loss;
}

static void step(tc_context* ctx, const Param* p, int t) {
  static uint64_t rounding = 0;
  const float beta1 = 0.9f, beta2 = 0.99f;
  MUST(tc_adamw_step_bf16(ctx, p->w, p->m, p->v, p->grad, TC_DTYPE_F32, p->n, 1e-3f, beta1, beta2, 1e-8f, 0.01f,
                          1 - powf(beta1, (float)t), 1 - powf(beta2, (float)t), ++rounding));
}

int main(void) {
  tc_context* ctx = NULL;
  MUST(tc_init(&ctx));
  MUST(tc_training_dtype(ctx, TC_DTYPE_BF16));

  tc_buffer* x = half_buffer(ctx, kTokens * kDim);
  fill(x, kTokens * kDim, 1, 0);
  int classes[kTokens];
  for (int t = 0; t < kTokens; ++t) classes[t] = (int)((uniform() + 1) * kClasses / 2);

  Block blocks[kLayers];
  for (int l = 0; l < kLayers; ++l) {
    blocks[l] = block_of(ctx, TC_DTYPE_BF16, l ? blocks[l - 1].y : x);
    Param* list[kParams];
    block_params(&blocks[l], list);
    for (int i = 0; i < kParams; ++i) {
      const int is_norm = list[i]->n == kDim;
      fill(list[i]->w, list[i]->n, is_norm ? 0 : 0.2f, is_norm ? 1 : 0);
    }
  }
  Param head = param_of(ctx, kDim * kClasses);
  fill(head.w, head.n, 0.1f, 0);
  tc_buffer *logits = half_buffer(ctx, kTokens * kClasses), *dy = half_buffer(ctx, kTokens * kDim);

  float first = 0, loss = 0;
  for (int t = 1; t <= kSteps; ++t) {
    for (int l = 0; l < kLayers; ++l) block_forward(ctx, &blocks[l]);
    tc_buffer* const last = blocks[kLayers - 1].y;
    linear(ctx, TC_DTYPE_BF16, last, &head, logits, kTokens, kClasses, kDim);
    MUST(tc_softmax_forward(ctx, logits, logits, kTokens, kClasses));
    loss = cross_entropy(map(logits), classes);
    if (t == 1) first = loss;
    if (t == 1 || t % 10 == 0) printf("step %3d  loss %.4f\n", t, (double)loss);

    linear_backward(ctx, TC_DTYPE_BF16, last, &head, logits, dy, kTokens, kClasses, kDim, 0);
    for (int l = kLayers; l-- > 0;) block_backward(ctx, &blocks[l], l + 1 < kLayers ? blocks[l + 1].dx : dy);

    step(ctx, &head, t);
    for (int l = 0; l < kLayers; ++l) {
      Param* list[kParams];
      block_params(&blocks[l], list);
      for (int i = 0; i < kParams; ++i) step(ctx, list[i], t);
    }
  }
  printf("the loss fell by %.1f %% on backend %s\n", (double)(100 * (1 - loss / first)),
         tc_backend_name(tc_last_backend()));
  MUST(tc_shutdown(ctx)); /* frees every buffer */
  return loss <= first / 10 ? 0 : 1;
}
