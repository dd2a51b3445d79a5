// 100,000 random calls of the C ABI: handles live, freed, foreign and NULL, sizes right, wrong and absurd. None crashes,
// none writes outside its outputs, every refusal has a sentence and wrote nothing. .ci/run runs it under AddressSanitizer too.
#include "kit_test.h"

namespace tc::testing {
namespace {

constexpr size_t kGuard = 64;

// Random arguments, mostly such that some calls succeed.
class Fuzzer {
 public:
  explicit Fuzzer(unsigned seed) : random_(seed) { tc_init(&ctx_); }
  ~Fuzzer() {
    while (tc_shutdown(ctx_) == TC_OK) continue;
  }
  Fuzzer(const Fuzzer&) = delete;
  Fuzzer& operator=(const Fuzzer&) = delete;

  void run(int calls) {
    for (int i = 0; i < calls; ++i) {
      const bool watched = i % 64 == 0;
      const auto before = watched ? contents() : Contents();
      const tc_status_t status = one_call();
      ++(status == TC_OK ? succeeded : refused);
      if (status == TC_OK) continue;
      ASSERT_LT(status, 0);
      ASSERT_STRNE(tc_last_error(), "") << tc_status_string(status);
      ASSERT_STRNE(tc_status_string(status), "unknown status");
      const std::string sentence = tc_last_error();
      ASSERT_TRUE(!watched || before == contents()) << "written, yet refused: " << sentence;
    }
    for (const auto& memory : lent_)
      for (size_t i = 0; i < kGuard; ++i)
        ASSERT_TRUE(memory[i] == 0x5a && memory[memory.size() - 1 - i] == 0x5a) << "a stray write";
  }

  int succeeded = 0, refused = 0;

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool rarely() { return below(24) == 0; }
  int size() {
    static constexpr int kOdd[] = {0, -1, INT32_MAX, INT32_MIN, 65536, 1 << 20};
    return rarely() ? kOdd[below(6)] : 1 + below(8);
  }
  float number() {
    static const float kOdd[] = {0, -1, std::nanf(""), INFINITY, 1e-40f, 3e38f};
    return rarely() ? kOdd[below(6)] : 0.5f;
  }
  int32_t dtype() { return rarely() ? below(20) - 3 : below(3); }

  tc_context* context() {
    if (!rarely()) return ctx_;
    return below(2) ? nullptr : reinterpret_cast<tc_context*>(buffer());
  }
  tc_buffer* buffer() {
    if (buffers_.empty() || rarely()) return foreign<tc_buffer>();
    return buffers_[random_() % buffers_.size()];
  }
  tc_stream* stream() {
    if (streams_.empty() || rarely()) return foreign<tc_stream>();
    return streams_[random_() % streams_.size()];
  }
  template <class T>
  T* foreign() {
    switch (below(4)) {
      case 0:
        return nullptr;
      case 1:
        return reinterpret_cast<T*>(uint64_t{random_()} << 32 | random_());
      case 2:
        return reinterpret_cast<T*>(&random_);
      default:
        return reinterpret_cast<T*>(ctx_);
    }
  }

  // A buffer of a few sizes, so that most fit small shapes; some are lent memory between guards.
  tc_status_t make_buffer() {
    static constexpr size_t kSizes[] = {1, 16, 64, 256, 4096, 65536, SIZE_MAX, size_t{1} << 50, 0};
    const size_t bytes = kSizes[rarely() ? below(9) : 3 + below(3)];
    tc_buffer* b = nullptr;
    tc_status_t status;
    if (below(2) && bytes <= 65536) {
      auto& memory = lent_.emplace_back(bytes + 2 * kGuard, 0x5a);
      status = tc_buffer_from_ptr(context(), memory.data() + kGuard + (rarely() ? 1 : 0),
                                  rarely() ? 0 : bytes - (bytes > 1 ? 1 : 0), &b);
    } else {
      status = tc_buffer_alloc(context(), bytes, rarely() ? nullptr : &b);
      if (status == TC_OK) std::memset(map(b), 0, bytes);
    }
    if (status == TC_OK) {
      if (buffers_.size() >= 64)
        buffers_[random_() % 64] = b;  // the one before is still live, and lost
      else
        buffers_.push_back(b);
    }
    return status;
  }
  // What the live buffers hold when no call is on its way.
  using Contents = std::vector<std::string>;
  Contents contents() const {
    for (tc_stream* s : streams_) tc_stream_sync(s);
    Contents all;
    for (tc_buffer* b : buffers_)
      if (const void* p = map(b)) all.emplace_back(static_cast<const char*>(p), tc_buffer_size(b));
    return all;
  }
  static void* map(tc_buffer* b) {
    void* p = nullptr;
    tc_buffer_map(b, &p);
    return p;
  }

  tc_gemm_desc gemm() {
    tc_gemm_desc d{};
    d.M = size(), d.N = size(), d.K = rarely() ? 0 : size();
    d.a_dtype = dtype();
    d.b_dtype = rarely() ? dtype() : d.a_dtype;
    d.c_dtype = rarely() ? dtype() : d.a_dtype;
    d.accum_dtype = rarely() ? dtype() : TC_DTYPE_F32;
    if (below(8) == 0) d.a_dtype = d.b_dtype = TC_DTYPE_I8, d.c_dtype = d.accum_dtype = TC_DTYPE_I32;
    d.transpose_a = below(2), d.transpose_b = below(2);
    d.alpha = number(), d.beta = number();
    if (below(4) == 0) d.lda = size(), d.ldb = size(), d.ldc = size();
    return d;
  }
  tc_attention_desc attention() {
    tc_attention_desc d{};
    d.batch = size(), d.heads = size(), d.seq_q = size(), d.seq_kv = size(), d.head_dim = size();
    d.io_dtype = dtype(), d.accum_dtype = rarely() ? dtype() : TC_DTYPE_F32;
    d.softmax_scale = number();
    d.causal = below(2), d.return_lse = below(2);
    d.kv_heads = below(3) ? 0 : size(), d.window_size = below(3) ? 0 : size();
    d.alibi_slopes = below(3) ? nullptr : slopes_.data();
    return d;
  }

  tc_status_t one_call() {
    switch (below(4)) {
      case 0:
        return handle_call();
      case 1:
        return row_call();
      case 2:
        return element_call();
      default:
        return matrix_call();
    }
  }

  tc_status_t handle_call() {
    void* p = nullptr;
    tc_device_info info;
    tc_cuda_device_info gpu;
    switch (below(12)) {
      case 0: {
        tc_buffer* const b = buffer();
        return tc_buffer_free(context(), b);  // the handle is kept, stale
      }
      case 1:
        return tc_buffer_map(buffer(), rarely() ? nullptr : &p);
      case 2:
        tc_buffer_size(buffer());
        return TC_OK;
      case 3: {
        tc_stream* s = nullptr;
        if (streams_.size() >= 8) return tc_stream_destroy(context(), stream());
        const tc_status_t status = tc_stream_create(context(), rarely() ? nullptr : &s);
        if (s) streams_.push_back(s);
        return status;
      }
      case 4:
        return rarely() ? tc_stream_destroy(context(), stream()) : tc_stream_sync(stream());
      case 5:
        return tc_device_info_get(context(), rarely() ? nullptr : &info);
      case 6:
        return below(2) ? tc_cuda_init(context()) : tc_cuda_device_at(below(3) - 1, &gpu);
      case 7:
        return tc_training_dtype(context(), static_cast<tc_dtype_t>(below(3)));
      default:
        return make_buffer();
    }
  }

  tc_status_t row_call() {
    tc_context* const c = context();
    switch (below(9)) {
      case 6:
        return tc_layernorm_forward(c, buffer(), buffer(), buffer(), buffer(), buffer(), buffer(), size(), size(),
                                    number());
      case 7:
        return below(2) ? tc_layernorm_backward(c, buffer(), buffer(), buffer(), buffer(), buffer(), buffer(), size(),
                                                size())
                        : tc_layernorm_backward_params(c, buffer(), buffer(), buffer(), buffer(), buffer(), buffer(),
                                                       size(), size());
      case 8:
        return below(2)
                   ? tc_fused_rmsnorm_gemv(c, buffer(), buffer(), buffer(), buffer(), size(), size(), size(), number())
                   : tc_fused_layernorm_gemv(c, buffer(), buffer(), buffer(), buffer(), buffer(), size(), size(),
                                             size(), number());
      case 0:
        return tc_rmsnorm_forward(c, buffer(), buffer(), buffer(), buffer(), size(), size(), number());
      case 1:
        return tc_rmsnorm_backward(c, buffer(), buffer(), buffer(), buffer(), buffer(), buffer(), size(), size());
      case 2:
        return tc_softmax_forward(c, buffer(), buffer(), size(), size());
      case 3:
        return tc_softmax_backward(c, buffer(), buffer(), buffer(), size(), size());
      case 4:
        return tc_rope_forward(c, buffer(), buffer(), buffer(), size(), size(), size(), 2 * (size() / 2));
      default:
        return tc_rope_backward(c, buffer(), buffer(), buffer(), size(), size(), size(), size());
    }
  }

  tc_status_t element_call() {
    tc_context* const c = context();
    switch (below(8)) {
      case 0:
        return tc_swiglu_forward(c, buffer(), buffer(), buffer(), size());
      case 1:
        return tc_swiglu_backward(c, buffer(), buffer(), buffer(), buffer(), buffer(), size());
      case 2:
        return tc_adamw_step(c, buffer(), buffer(), buffer(), buffer(), static_cast<tc_dtype_t>(below(3)), size(),
                             number(), number(), number(), number(), number(), number(), number());
      case 3:
        return tc_adamw_step_bf16(c, buffer(), buffer(), buffer(), buffer(), static_cast<tc_dtype_t>(below(3)), size(),
                                  number(), number(), number(), number(), number(), number(), number(), random_());
      case 4:
        return tc_add(c, buffer(), buffer(), buffer(), size());
      case 5:
        return tc_split_heads(c, buffer(), buffer(), buffer(), buffer(), size(), size(), size(), size(), size());
      case 6:
        return tc_merge_heads(c, buffer(), nullptr, nullptr, buffer(), size(), size(), size(), 0, size());
      default:
        return tc_rope_tables(c, buffer(), buffer(), size(), 2 * (size() / 2), rarely() ? -1 : 1e4, number());
    }
  }

  tc_status_t matrix_call() {
    tc_context* const c = context();
    const tc_gemm_desc g = gemm();
    const tc_attention_desc a = attention();
    switch (below(7)) {
      case 0:
        return tc_gemm(c, rarely() ? nullptr : &g, buffer(), buffer(), buffer());
      case 1:
        return tc_gemm_async(c, &g, buffer(), buffer(), buffer(), below(2) ? nullptr : stream());
      case 2: {
        const tc_gemm_batched_desc b{g, size(), size(), size(), rarely() ? INT64_MAX : int64_t{size()} * 8};
        return tc_gemm_batched(c, &b, buffer(), buffer(), buffer());
      }
      case 3:
        return tc_gemm_bias(c, &g, buffer(), buffer(), buffer(), static_cast<tc_activation_t>(below(9)), buffer());
      case 4:
        return tc_attention_forward(c, rarely() ? nullptr : &a, buffer(), buffer(), buffer(), buffer(), buffer());
      case 5:
        return tc_attention_forward_async(c, &a, buffer(), buffer(), buffer(), buffer(), buffer(),
                                          below(2) ? nullptr : stream());
      default:
        return tc_attention_backward(c, &a, buffer(), buffer(), buffer(), buffer(), buffer(), buffer(), buffer(),
                                     buffer(), buffer());
    }
  }

  std::mt19937 random_;
  tc_context* ctx_ = nullptr;
  std::vector<tc_buffer*> buffers_;
  std::vector<tc_stream*> streams_;
  std::vector<std::vector<unsigned char>> lent_;
  std::vector<float> slopes_ = std::vector<float>(size_t{1} << 17, 0.5f);
};

TEST(KitFuzz, AHundredThousandRandomCalls) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Fuzzer fuzzer(seed);
    fuzzer.run(10000);
    EXPECT_GT(fuzzer.succeeded, 2000) << "most calls were refused, so this shows little";
    EXPECT_GT(fuzzer.refused, 1000);
  }
}

}  // namespace
}  // namespace tc::testing
