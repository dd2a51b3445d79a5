// Tensors over vectors, and calls that must be refused.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "traincore/core/error.h"
#include "traincore/core/numeric.h"

namespace tc {

template <class T>
tc_tensor view(std::vector<T>& data, std::vector<int64_t> shape) {
  return tc_tensor_dense(data.data(), dtype_of<T>, static_cast<int32_t>(shape.size()), shape.data());
}
template <class T>
tc_tensor view(std::vector<T>& data) {
  return view(data, {static_cast<int64_t>(data.size())});
}

inline std::vector<float> normal(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  for (float& v : values) v = distribution(generator);
  return values;
}

// The sentence of a call that must be refused with `code`.
template <class F>
std::string refusal(tc_status_t code, F&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "the call was not refused";
  return "";
}

}  // namespace tc
