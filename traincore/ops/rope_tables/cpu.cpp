// Tables of cos and sin: frequencies and angles in double, so that position 10^6 is right to the last bit of an f32.
#include <algorithm>
#include <cmath>

#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rope_tables/plan.h"

namespace tc::ops::rope_tables {
namespace {

constexpr int64_t kPairs = 256;  // made at a time

// table = amplitude function(position inv_freq).
template <class F>
void fill_table(const tc_tensor& table, const Args& a, const double* inv_freq, const tc_exec& exec, F function) {
  if (!given(table)) return;
  const AnyRows rows(table);
  const Indices positions(a.positions);
  const double amplitude = amplitude_of(a);
  parallel_blocks(rows.count(), rows_per_block(rows.count(), rows.cols()), exec.threads,
                  [&](int64_t begin, int64_t end) {
                    float values[kPairs];
                    for (int64_t r = begin; r < end; ++r) {
                      const auto position = static_cast<double>(given(a.positions) ? positions[r] : r);
                      for (int64_t first = 0; first < rows.cols(); first += kPairs) {
                        const int64_t n = std::min(kPairs, rows.cols() - first);
                        for (int64_t i = 0; i < n; ++i)
                          values[i] = static_cast<float>(amplitude * function(position * inv_freq[first + i]));
                        narrow(table.dtype, values, n, rows.at(r, first));
                      }
                    }
                  });
}

}  // namespace

void run_cpu(const Args& a, const tc_exec& exec) {
  const Scratch scratch(carve, a, exec);
  const int64_t half = half_of(a);
  scaled_frequencies(a, half, scratch->inv_freq);
  fill_table(a.cos, a, scratch->inv_freq, exec, [](double angle) { return std::cos(angle); });
  fill_table(a.sin, a, scratch->inv_freq, exec, [](double angle) { return std::sin(angle); });
  if (given(a.inv_freq)) std::copy_n(scratch->inv_freq, half, static_cast<float*>(a.inv_freq.data));
}

}  // namespace tc::ops::rope_tables
