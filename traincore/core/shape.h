// The shape language of the schema. Parsed at compile time.
//
//   shape  := alternative { '|' alternative }          the first alternative whose rank fits is the one meant
//   alternative := [ 'when(' field '=' number ')' ] ( 'scalar' | term { ' ' term } )
//   term   := name '...'                               any number of leading dimensions, each extent bound
//           | [ number '*' ] name [ '+' number ] | number
//
// A name binds at first use and must agree afterwards: "rows... cols", "2*ff", "n+1", "seq half | batch seq half".
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "traincore/core/types.h"

namespace tc {

constexpr uint32_t name_hash(std::string_view s) {
  uint32_t h = 2166136261u;
  for (const char c : s) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h;
}

struct Term {
  std::string_view name;  // empty: a number, held in `add`
  uint32_t hash = 0;
  int32_t multiply = 1, add = 0;
  bool variadic = false;
};

struct ShapeAlternative {
  std::array<Term, TC_MAX_RANK> terms{};
  int count = 0;
  bool variadic = false;        // the first term swallows any number of dimensions
  std::string_view when_field;  // empty: always
  int32_t when_value = 0;

  constexpr bool fits(int rank) const { return variadic ? rank >= count - 1 : rank == count; }
};

class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor): schema tables read better
    std::string_view rest = text_;
    while (true) {
      const auto bar = rest.find('|');
      alternatives_[count_++] = parse_alternative(rest.substr(0, bar));
      if (bar == rest.npos) break;
      rest.remove_prefix(bar + 1);
    }
  }
  constexpr std::string_view text() const { return text_; }
  constexpr int count() const { return count_; }
  constexpr const ShapeAlternative& operator[](int i) const { return alternatives_[i]; }

 private:
  static constexpr int32_t parse_number(std::string_view s) {
    int32_t n = 0;
    for (const char c : s)
      n = c >= '0' && c <= '9' ? n * 10 + (c - '0') : throw "the shape language wants a number here";
    return n;
  }
  static constexpr Term parse_term(std::string_view s) {
    Term t;
    if (s[0] >= '0' && s[0] <= '9' && s.find('*') == s.npos) return {.add = parse_number(s)};
    if (const auto star = s.find('*'); star != s.npos)
      t.multiply = parse_number(s.substr(0, star)), s.remove_prefix(star + 1);
    if (const auto plus = s.find('+'); plus != s.npos) t.add = parse_number(s.substr(plus + 1)), s = s.substr(0, plus);
    if (s.ends_with("...")) t.variadic = true, s.remove_suffix(3);
    t.name = s;
    t.hash = name_hash(s);
    return t;
  }
  static constexpr ShapeAlternative parse_alternative(std::string_view s) {
    ShapeAlternative a;
    while (true) {
      while (!s.empty() && s[0] == ' ') s.remove_prefix(1);
      if (s.empty()) return a;
      const auto space = s.find(' ');
      const std::string_view word = s.substr(0, space);
      s = space == s.npos ? std::string_view{} : s.substr(space + 1);
      if (word == "scalar") continue;
      if (word.starts_with("when(")) {
        const auto equals = word.find('=');
        a.when_field = word.substr(5, equals - 5);
        a.when_value = parse_number(word.substr(equals + 1, word.size() - equals - 2));
        continue;
      }
      a.terms[a.count] = parse_term(word);
      if (a.terms[a.count].variadic && a.count) throw "only the first term may be variadic";
      a.variadic |= a.terms[a.count++].variadic;
    }
  }
  std::string_view text_;
  std::array<ShapeAlternative, 3> alternatives_{};
  int count_ = 0;
};

// The extents that the dimension names took, e.g. {"cols": 4096}; "rows..." binds each leading extent as part 0, 1, ...
// and their number as part -1.
class Dims {
 public:
  struct Bound {
    std::string_view name;
    uint32_t hash;
    int32_t part;
    int64_t value;
  };
  const Bound* find(uint32_t hash, int part) const {
    for (int i = 0; i < count_; ++i)
      if (bound_[i].hash == hash && bound_[i].part == part) return &bound_[i];
    return nullptr;
  }
  void bind(const Bound& b) { bound_[count_++] = b; }
  void clear() { count_ = 0; }
  bool full() const { return count_ == static_cast<int>(bound_.size()); }
  // The extent of a dimension; of a variadic one, the product of its extents; 1 if it was never bound.
  int64_t operator[](std::string_view name) const {
    const uint32_t h = name_hash(name);
    int64_t product = 1;
    for (int i = 0; i < count_; ++i)
      if (bound_[i].hash == h && bound_[i].part >= 0) product *= bound_[i].value;
    return product;
  }
  bool has(std::string_view name) const {
    const uint32_t h = name_hash(name);
    return find(h, 0) || find(h, -1);
  }

 private:
  std::array<Bound, 40> bound_;
  int count_ = 0;
};

}  // namespace tc
