// Device code: reading and writing several elements at once, converted to f32 at loads and back at stores.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "traincore/core/numeric.h"

namespace tc::cuda {

// Where p, in shared memory, is for instructions that access nothing else.
__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

template <int kBytes>
struct RawBits;
template <>
struct RawBits<16> {
  using type = uint4;
};
template <>
struct RawBits<8> {
  using type = uint2;
};
template <>
struct RawBits<4> {
  using type = uint32_t;
};
template <>
struct RawBits<2> {
  using type = uint16_t;
};

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }
__device__ __forceinline__ float to_f32(f16 x) { return __half2float(__ushort_as_half(x.bits)); }

template <class T>
__device__ __forceinline__ T from_f32(float x);
template <>
__device__ __forceinline__ float from_f32<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) {
  bf16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return y;
}
template <>
__device__ __forceinline__ f16 from_f32<f16>(float x) {
  f16 y;
  y.bits = __half_as_ushort(__float2half_rn(x));
  return y;
}

// N f32 values of one thread.
template <int N>
struct Floats {
  float at[N];
  __device__ __forceinline__ float& operator[](int i) { return at[i]; }
  __device__ __forceinline__ float operator[](int i) const { return at[i]; }
};

// f(i) for i in 0 .. N-1, as N f32 values.
template <int N, class F>
__device__ __forceinline__ Floats<N> floats(F&& f) {
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] = f(i);
  return y;
}

template <int N>
__device__ __forceinline__ void add_to(Floats<N>& x, const Floats<N>& more) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] += more[i];
}

// Of all N, by halves.
template <int N>
__device__ __forceinline__ float total(Floats<N> x) {
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}

// N elements as they are stored: one load, kept in as few registers as they have bits.
template <class T, int N>
struct Pack {
  using Raw = typename RawBits<int(sizeof(T)) * N>::type;
  Raw raw;

  static __device__ __forceinline__ Pack load(const T* p) { return {*reinterpret_cast<const Raw*>(p)}; }
  // For data that nothing reads again soon: first out of the caches.
  static __device__ __forceinline__ Pack load_once(const T* p) { return {__ldcs(reinterpret_cast<const Raw*>(p))}; }
  __device__ __forceinline__ void store(T* p) const { *reinterpret_cast<Raw*>(p) = raw; }
  __device__ __forceinline__ void store_once(T* p) const { __stcs(reinterpret_cast<Raw*>(p), raw); }
  // Where it is to be stored; without a branch, so that vectors need not wait for each other.
  __device__ __forceinline__ void store_once_if(bool is_to_be, T* p) const {
    static_assert(sizeof(Raw) == 16);
    asm volatile(
        "{\n\t.reg .pred is_to_be;\n\t"
        "setp.ne.u32 is_to_be, %0, 0;\n\t"
        "@is_to_be st.global.cs.v4.u32 [%1], {%2, %3, %4, %5};\n\t}" ::"r"(uint32_t(is_to_be)),
        "l"(p), "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w)
        : "memory");
  }

  __device__ __forceinline__ Floats<N> f32() const {
    if constexpr (dtype_of<T> == TC_DTYPE_BF16 && N > 1) {  // one instruction an element
      const auto* const pairs = reinterpret_cast<const uint32_t*>(&raw);
      return floats<N>([&](int i) { return __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16); });
    } else {
      const T* elements = reinterpret_cast<const T*>(&raw);
      return floats<N>([&](int i) { return to_f32(elements[i]); });
    }
  }
  static __device__ __forceinline__ Pack from(const Floats<N>& x) {
    Pack p;
    T* elements = reinterpret_cast<T*>(&p.raw);
#pragma unroll
    for (int i = 0; i < N; ++i) elements[i] = from_f32<T>(x[i]);
    return p;
  }
};

// How many elements of T one 16-byte access carries.
template <class T>
inline constexpr int kWide = 16 / int(sizeof(T));

// A [cols] vector whose dtype is known only at run time; the same for every thread, so the branch costs nothing.
// Wide loads need data aligned to 16 bytes and c to be a multiple of N.
struct AnyVector {
  const void* data;
  int32_t dtype;
  template <int N>
  __device__ __forceinline__ Floats<N> load(int c) const {
    if (dtype == TC_DTYPE_F32) return load_as<float, N>(c);
    return dtype == TC_DTYPE_BF16 ? load_as<bf16, N>(c) : load_as<f16, N>(c);
  }

 private:
  template <class T, int N>
  __device__ __forceinline__ Floats<N> load_as(int c) const {
    constexpr int kPart = N < kWide<T> ? N : kWide<T>;
    Floats<N> y;
#pragma unroll
    for (int part = 0; part < N / kPart; ++part) {
      const auto piece = Pack<T, kPart>::load(static_cast<const T*>(data) + c + part * kPart).f32();
#pragma unroll
      for (int i = 0; i < kPart; ++i) y[part * kPart + i] = piece[i];
    }
    return y;
  }
};

// A [cols] vector of T.
template <class T, int N>
struct PlainVector {
  const T* data;
  __device__ __forceinline__ Floats<N> operator()(int c) const {
    constexpr int kPart = N < kWide<T> ? N : kWide<T>;
    Floats<N> y;
#pragma unroll
    for (int part = 0; part < N / kPart; ++part) {
      const auto piece = Pack<T, kPart>::load(data + c + part * kPart).f32();
#pragma unroll
      for (int i = 0; i < kPart; ++i) y[part * kPart + i] = piece[i];
    }
    return y;
  }
};

// offset + vector, or 1 where there is no vector: the gain of a norm.
struct Gain {
  AnyVector vector;
  float offset;
  template <int N>
  __device__ __forceinline__ Floats<N> load(int c) const {
    if (!vector.data) return floats<N>([](int) { return 1.0f; });
    auto y = vector.template load<N>(c);
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] += offset;
    return y;
  }
  // f(gain(c) -> Floats<N>). Of a plain vector of f32, or of T as the rows are, the dtype is looked at once and not at every
  // load. Each is one more copy of f in the kernel.
  template <class T, int N, class F>
  __device__ __forceinline__ void visit(F&& f) const {
    const bool is_plain = vector.data && offset == 0;
    if (is_plain && vector.dtype == TC_DTYPE_F32)
      return f(PlainVector<float, N>{static_cast<const float*>(vector.data)});
    if constexpr (sizeof(T) < sizeof(float))
      if (is_plain && vector.dtype == dtype_of<T>) return f(PlainVector<T, N>{static_cast<const T*>(vector.data)});
    f([this](int c) { return load<N>(c); });
  }
};

// The element type of a run-time dtype, for outputs of one element at a time (parameter gradients).
__device__ __forceinline__ void store_as(void* data, int32_t dtype, int64_t i, float x) {
  if (dtype == TC_DTYPE_F32)
    static_cast<float*>(data)[i] = x;
  else if (dtype == TC_DTYPE_BF16)
    static_cast<bf16*>(data)[i] = from_f32<bf16>(x);
  else
    static_cast<f16*>(data)[i] = from_f32<f16>(x);
}
// The same for N elements from c on of a row that 16-byte accesses fit.
template <class T, int N>
__device__ __forceinline__ void store_wide(T* row, int c, const Floats<N>& x) {
  constexpr int kPart = N < kWide<T> ? N : kWide<T>;
#pragma unroll
  for (int part = 0; part < N / kPart; ++part)
    Pack<T, kPart>::from(floats<kPart>([&](int i) { return x[part * kPart + i]; })).store(row + c + part * kPart);
}
template <int N>
__device__ __forceinline__ void store_as(void* row, int32_t dtype, int c, const Floats<N>& x) {
  if (dtype == TC_DTYPE_F32)
    store_wide(static_cast<float*>(row), c, x);
  else if (dtype == TC_DTYPE_BF16)
    store_wide(static_cast<bf16*>(row), c, x);
  else
    store_wide(static_cast<f16*>(row), c, x);
}

}  // namespace tc::cuda
