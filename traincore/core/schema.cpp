// Reading and writing the scalars that a schema describes.
#include "traincore/core/schema.h"

#include <cstring>

namespace tc {

double scalar_at(const void* args, const Field& f) {
  const auto* p = static_cast<const std::byte*>(args) + f.offset;
  switch (f.role) {
    case Role::number:
      return *reinterpret_cast<const double*>(p);
    case Role::integer:
      return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
    default:
      return *reinterpret_cast<const int32_t*>(p);
  }
}

void set_scalar(void* args, const Field& f, double value) {
  auto* p = static_cast<std::byte*>(args) + f.offset;
  switch (f.role) {
    case Role::number:
      *reinterpret_cast<double*>(p) = value;
      break;
    case Role::integer:
      *reinterpret_cast<int64_t*>(p) = static_cast<int64_t>(value);
      break;
    default:
      *reinterpret_cast<int32_t*>(p) = static_cast<int32_t>(value);
      break;
  }
}

size_t field_size(const Field& f) {
  if (f.is_list()) return sizeof(tc_tensor*);
  if (f.is_tensor()) return sizeof(tc_tensor);
  return f.role == Role::number || f.role == Role::integer ? 8 : 4;
}

std::string_view choice_name(const Field& f, int64_t v) {
  std::string_view rest = f.choices;
  for (; v > 0 && !rest.empty(); --v) {
    const auto bar = rest.find('|');
    rest = bar == rest.npos ? std::string_view{} : rest.substr(bar + 1);
  }
  if (v < 0) return {};
  const std::string_view name = rest.substr(0, rest.find('|'));
  return name == "?" ? std::string_view{} : name;
}

void set_defaults(const Pass& pass, void* args) {
  std::memset(args, 0, pass.args_size);
  const auto size = static_cast<uint32_t>(pass.args_size);
  std::memcpy(args, &size, sizeof size);
  for (const Field& f : pass.fields)
    if (!f.is_tensor()) set_scalar(args, f, f.default_value);
}

}  // namespace tc
