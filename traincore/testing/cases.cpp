#include "traincore/testing/cases.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "traincore/core/fail.h"

namespace tc::testing {

double Random::uniform() { return uniform01(philox_(counter_++).x); }

void Random::draw_normals() {
  const Words4 w = philox_(counter_++);
  const auto pair = [](uint32_t length, uint32_t direction) {
    const float radius = std::sqrt(-2 * std::log(uniform01(length)));
    const float angle = 2 * std::numbers::pi_v<float> * uniform01(direction);
    return std::pair(radius * std::cos(angle), radius * std::sin(angle));
  };
  std::tie(normals_[0], normals_[1]) = pair(w.x, w.y);
  std::tie(normals_[2], normals_[3]) = pair(w.z, w.w);
  next_normal_ = 0;
}

int64_t Random::below(int64_t n) {
  const Words4 w = philox_(counter_++);
  return static_cast<int64_t>((uint64_t{w.x} << 32 | w.y) % static_cast<uint64_t>(n));
}

Fill normal(double scale, double mean) {
  return [=](const Case&, Random& r, int64_t) { return mean + scale * r.normal(); };
}
Fill uniform(double low, double high) {
  return [=](const Case&, Random& r, int64_t) { return low + (high - low) * r.uniform(); };
}
Fill constant(double value) {
  return [=](const Case&, Random&, int64_t) { return value; };
}
Fill values(std::vector<double> list) {
  return
      [list = std::move(list)](const Case&, Random&, int64_t i) { return list[static_cast<size_t>(i) % list.size()]; };
}
Fill integers_below(std::string dimension) {
  return [dimension = std::move(dimension)](const Case& c, Random& r, int64_t) {
    return static_cast<double>(r.below(c.extent(dimension)));
  };
}

int64_t Case::extent(std::string_view name) const {
  const auto found = dims.find(name);
  if (found == dims.end()) fail(TC_ERR_INTERNAL, "a case does not say how large {} is", name);
  int64_t n = 1;
  for (const int64_t e : found->second) n *= e;
  return n;
}

bool Case::is_empty() const {
  return std::any_of(dims.begin(), dims.end(),
                     [](const auto& d) { return std::count(d.second.begin(), d.second.end(), 0) > 0; });
}

std::string Case::text() const {
  static const char* const layout_names[] = {"dense", "padded", "offset", "expanded", "reversed", "transposed"};
  std::string s;
  const auto add = [&](const std::string& word) { s.append(s.empty() ? "" : " ").append(word); };
  for (const auto& [name, extents] : dims) {
    std::string list;
    for (const int64_t e : extents) list.append(list.empty() ? "" : "x").append(std::to_string(e));
    add(name + "=" + (extents.empty() ? "scalar" : list));
  }
  if (!list_shapes.empty()) add(fmt::format("tensors={}", list_shapes.size()));
  for (const auto& [name, value] : scalars) add(fmt::format("{}={:g}", name, value));
  for (const auto& name : given) add("+" + name);
  for (const auto& [name, layout] : layouts) add(fmt::format("{}:{}", name, layout_names[static_cast<int>(layout)]));
  for (const auto& [name, dtype] : dtypes) add(fmt::format("{}:{}", name, tc_dtype_name(dtype)));
  for (const auto& [output, input] : in_place) add(fmt::format("{} in {}", output, input));
  for (const auto& [name, fill] : fills) add(name + ":filled");
  return s;
}

std::vector<Case> row_sweep(Effort effort, const Case& base, const std::vector<const char*>& full_size_fields,
                            const char* rows, const char* cols) {
  const std::vector<int64_t> all_widths = {1,    2,    3,    17,   31,    33,    63,    65,    96,
                                           100,  127,  129,  257,  383,   511,   513,   1000,  1001,
                                           1408, 2560, 4096, 8192, 16384, 32768, 65536, 65537, 131072};
  const std::vector<int64_t> quick_widths = {1, 2, 3, 17, 33, 129, 257, 1001};
  const std::vector<int64_t> many_rows = {0, 17, 65535, 65536, 100000};
  const int64_t limit = effort == Effort::full     ? int64_t{1} << 26
                        : effort == Effort::normal ? int64_t{1} << 22
                                                   : 1 << 14;
  std::vector<Case> list;
  const auto add = [&](int64_t r, int64_t c) {
    Case x = base;
    x.dim(rows, r).dim(cols, c);
    if (r * c <= limit) list.push_back(x);
  };
  for (const int64_t c : effort == Effort::quick ? quick_widths : all_widths)
    for (const int64_t r : {1, 2, 7}) add(r, c);
  for (const int64_t r : many_rows)
    for (const int64_t c : {1, 33, 257}) add(r, c);
  // So many rows of every class of width that kernels which take rows in turn go round several times.
  constexpr std::pair<int64_t, int64_t> turns[] = {{60000, 128}, {9000, 512},  {4500, 2048}, {700, 16640},
                                                   {150, 69632}, {64, 135168}, {30, 270336}};
  if (effort != Effort::quick)
    for (const auto& [r, c] : turns) list.push_back(Case(base).dim(rows, r).dim(cols, c));
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed}) {
    Case x = base;
    x.dim(rows, {3, 5}).dim(cols, 67);
    for (const char* f : full_size_fields) x.layouts[f] = l;
    list.push_back(x);
  }
  return list;
}

std::vector<Case> element_sweep(Effort effort, const Case& base, const std::vector<const char*>& fields) {
  std::vector<std::vector<int64_t>> shapes = {
      {7, 513}, {}, {0}, {1}, {2}, {3}, {17}, {33}, {65}, {129}, {1001}, {2049}, {2, 0, 3}, {2, 3, 1, 2, 1, 3, 2, 5}};
  if (effort != Effort::quick)
    shapes.insert(shapes.end(), {{4096}, {16385}, {65537}, {100000}, {3, 1 << 18}, {1 << 20}});
  if (effort == Effort::full) shapes.push_back({1 << 26});
  std::vector<Case> list;
  for (const auto& shape : shapes) list.push_back(Case(base).dim("dims", shape));
  const std::vector<int64_t> cube = {3, 5, 67}, row = {77}, long_row = {5000};
  for (const char* f : fields) {
    for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed, Layout::transposed})
      list.push_back(Case(base).dim("dims", cube).layout({f}, l));
    for (const auto& shape : {row, long_row})
      list.push_back(Case(base).dim("dims", shape).layout({f}, Layout::reversed));
  }
  Case together = Case(base).dim("dims", cube);
  for (const char* f : fields) together.layouts[f] = Layout::transposed;
  list.push_back(together);
  return list;
}

std::vector<Case> mixed_norm_sweep(const Case& base) {
  std::vector<Case> list;
  const auto small = [&](int64_t cols) { return Case(base).dim("rows", {3, 5}).dim("cols", cols); };
  const auto mixed = [&](int64_t cols) {
    return small(cols)
        .with({"residual", "residual_out", "dresidual_out"})
        .dtype("residual", TC_DTYPE_F32)
        .dtype("residual_out", TC_DTYPE_F16)
        .dtype("dx", TC_DTYPE_F32);
  };
  for (const int64_t cols : {129, 512, 20004}) list.push_back(mixed(cols));
  list.push_back(mixed(129).layout({"x", "y"}, Layout::padded_rows));
  list.push_back(mixed(64).dim("rows", 1000).set("accumulate", 1));
  list.push_back(mixed(64).dim("rows", 0));
  list.push_back(mixed(256).dtype("y", TC_DTYPE_F32).alias("y", "residual"));
  list.push_back(small(256).dtype("y", TC_DTYPE_F16).dtype("dy", TC_DTYPE_F16));
  list.push_back(small(96).dim("rows", 7).dtype("x", TC_DTYPE_F16));
  list.back().given = {"dx"};
  return list;
}

}  // namespace tc::testing
