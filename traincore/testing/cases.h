// What an op's cases.cpp says about it: which shapes and options to run, what the definition is, how wrong may look.
// One case serves both passes of an op: it names dimensions, scalars and the optional tensors that are given, and the
// schema of each pass takes from it what it knows. Fields of the same name hold the same values in both passes; a
// backward input that is a forward output comes from the forward oracle; d<output> is a random cotangent.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "traincore/core/random.h"
#include "traincore/core/schema.h"

namespace tc::testing {

enum class Effort { quick, normal, full };

// A reproducible stream of random numbers: the same for the same (case, field). Every block of four words makes one
// uniform number, one integer, or the next four normal ones (as f32 knows them: Box and Muller, two pairs).
class Random {
 public:
  explicit Random(uint64_t seed) : philox_{seed} {}
  double uniform();  // (0, 1)
  double normal() {
    if (next_normal_ == normals_.size()) draw_normals();
    return normals_[next_normal_++];
  }
  int64_t below(int64_t n);  // 0 .. n-1

 private:
  void draw_normals();

  Philox philox_;
  uint64_t counter_ = 0;
  std::array<float, 4> normals_;
  size_t next_normal_ = 4;
};

struct Case;
using Fill = std::function<double(const Case&, Random&, int64_t index)>;  // one element, before rounding to its dtype

Fill normal(double scale = 1, double mean = 0);
Fill uniform(double low, double high);
Fill constant(double value);
Fill values(std::vector<double> list);       // exactly these, repeated if the tensor is longer
Fill integers_below(std::string dimension);  // 0 .. extent of that dimension - 1

enum class Layout { dense, padded_rows, offset_by_one, expanded, reversed, transposed };

struct Case {
  std::map<std::string, std::vector<int64_t>, std::less<>> dims;  // variadic dimensions have several extents
  std::map<std::string, double, std::less<>> scalars;
  std::set<std::string, std::less<>> given;  // the optional tensors that are there
  std::map<std::string, Fill, std::less<>> fills;
  std::map<std::string, Layout, std::less<>> layouts;
  std::map<std::string, int32_t, std::less<>> dtypes;        // where not the case's; "grads[1]" is one of a list
  std::map<std::string, std::string, std::less<>> in_place;  // output -> the input whose memory it takes
  std::map<std::string, int, std::less<>> alternatives;      // field -> which alternative of its shape
  std::set<std::string, std::less<>> nonfinite, zero;        // outputs whose reference may hold Inf or NaN, or be 0
  std::vector<std::vector<int64_t>> list_shapes;             // shapes of the tensors of list fields

  Case& dim(std::string name, std::vector<int64_t> extents) {
    dims[std::move(name)] = std::move(extents);
    return *this;
  }
  Case& dim(std::string name, int64_t extent) { return dim(std::move(name), std::vector<int64_t>{extent}); }
  Case& set(std::string name, double value) {
    scalars[std::move(name)] = value;
    return *this;
  }
  Case& with(std::initializer_list<const char*> names) {
    given.insert(names.begin(), names.end());
    return *this;
  }
  Case& fill(std::string name, Fill f) {
    fills[std::move(name)] = std::move(f);
    return *this;
  }
  Case& layout(std::initializer_list<const char*> names, Layout l) {
    for (const char* n : names) layouts[n] = l;
    return *this;
  }
  Case& dtype(std::string name, int32_t d) {
    dtypes[std::move(name)] = d;
    return *this;
  }
  Case& alias(std::string output, std::string input) {
    in_place[std::move(output)] = std::move(input);
    return *this;
  }
  Case& alternative(std::string name, int index) {
    alternatives[std::move(name)] = index;
    return *this;
  }
  Case& may_be_nonfinite(std::initializer_list<const char*> names) {
    nonfinite.insert(names.begin(), names.end());
    return *this;
  }
  Case& may_be_zero(std::initializer_list<const char*> names) {
    zero.insert(names.begin(), names.end());
    return *this;
  }
  Case& lists(std::vector<std::vector<int64_t>> shapes) {
    list_shapes = std::move(shapes);
    return *this;
  }

  int64_t extent(std::string_view name) const;  // product of its extents; refuses an unknown name
  bool is_empty() const;                        // some extent is 0
  std::string text() const;                     // "rows=7 cols=129 eps=1e-05 with weight"
};

// An n-term reduction and the sum of its terms' magnitudes, for the budget of an output with cancellation.
struct Terms {
  double count = 1, magnitude = 0;
};

struct PassCases {
  std::string_view pass;
  // The definition in double: every float tensor of `args` is f64. `stored` is the same call with the dtypes that its
  // tensors have in storage, and memory that nobody reads: for definitions that round on the way.
  void (*exact)(const void* args, const void* stored) = nullptr;
  void (*honest)(const void* args, const void* stored) = nullptr;  // the same template in float: every tensor is f32
  // Largest reduction behind an output, from the exact arguments and results; NULL or magnitude 0: one term of the
  // output's own size.
  Terms (*terms)(std::string_view field, const void* exact_args) = nullptr;
};

// A deliberately wrong kernel, in f32, that check must catch.
struct Mutant {
  std::string_view name;
  std::string_view pass;
  void (*run)(const void* f32_args);
};

struct OpCases {
  std::string_view name;
  std::vector<PassCases> passes;
  std::vector<Case> (*list)(Effort);
  std::vector<Case> (*bench)() = nullptr;
  std::vector<Mutant> mutants;
  std::set<std::string, std::less<>> constant_inputs;  // float inputs without a gradient (tables, class weights)
  // Sizes for a GPU: hundreds of megabytes a call. NULL: those of `bench`.
  std::vector<Case> (*bench_cuda)() = nullptr;
  // What check --large gives more rows, or more elements where they know nothing of each other; of lists, the last tensor
  // more. NULL: the first of those sizes, for an op on rows.
  Case (*large)() = nullptr;
  // Inputs that it makes zero in all but the sampled rows, so that sums over rows are sums over those.
  std::set<std::string, std::less<>> summed;
  // For an op that reads nothing and whose elements depend on their places: the case of element `index` alone.
  void (*place)(Case& one, int64_t index) = nullptr;
  // Its products on a GPU are a library's, which loads a kernel at the first call that needs it, and waits meanwhile.
  bool loads_kernels = false;
};

TC_TOOL_API std::span<const OpCases* const> all_cases();

template <class A, void (*Exact)(const A&), void (*Honest)(const A&)>
PassCases pass_cases(std::string_view pass, Terms (*terms)(std::string_view, const void*) = nullptr) {
  return {pass, [](const void* a, const void*) { Exact(*static_cast<const A*>(a)); },
          [](const void* a, const void*) { Honest(*static_cast<const A*>(a)); }, terms};
}
template <class A, void (*Exact)(const A&, const A& stored), void (*Honest)(const A&, const A& stored)>
PassCases pass_cases(std::string_view pass, Terms (*terms)(std::string_view, const void*) = nullptr) {
  return {pass,
          [](const void* a, const void* stored) { Exact(*static_cast<const A*>(a), *static_cast<const A*>(stored)); },
          [](const void* a, const void* stored) { Honest(*static_cast<const A*>(a), *static_cast<const A*>(stored)); },
          terms};
}

// The widths and row counts of design.md section 7 for an op on [rows..., cols], at most 2^22 elements a case (2^26
// with
// --full): every width with a few rows, every row count with a few widths, then the layouts. `base` gives the rest.
std::vector<Case> row_sweep(Effort effort, const Case& base, const std::vector<const char*>& full_size_fields,
                            const char* rows = "rows", const char* cols = "cols");
// Rows that no 16-byte access fits, and so many that kernels for such rows go round several times: for ops that have them.
inline constexpr std::pair<int64_t, int64_t> kOddTurns[] = {{13001, 257}, {2001, 4099}, {150, 50257}, {40, 131073}};
// For an op on tensors of one shape [dims...] and any strides: from no element to 2^20, every rank, then the layouts,
// for each of `fields` by itself.
std::vector<Case> element_sweep(Effort effort, const Case& base, const std::vector<const char*>& fields);
// For a norm of x + residual on [rows..., cols] whose tensors differ in dtype.
std::vector<Case> mixed_norm_sweep(const Case& base);

}  // namespace tc::testing
