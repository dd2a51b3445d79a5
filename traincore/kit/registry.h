// Handles that are looked up, never trusted.
//
// A handle is no address. Its bits are a tag that no address of a program has (the upper 16, which say the kind), the
// generation of a slot, and the slot. So a freed, stale or foreign handle is told from a live one without touching
// memory, and a slot whose generations are used up is never used again.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "traincore/core/fail.h"

namespace tc::kit {

enum class Kind : uint64_t { context = 0x7c01, buffer = 0x7c02, stream = 0x7c03, gguf = 0x7c04 };

// Handle is the opaque struct of the C API, T what is behind it. Any thread may call.
template <class Handle, class T, Kind kKind>
class Registry {
 public:
  Handle* add(std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    if (free_.empty()) {
      if (slots_.size() > kMostSlots)
        fail(TC_ERR_ALLOC, "there are {} live handles of one kind; free some", kMostSlots);
      slots_.emplace_back();
      free_.push_back(slots_.size() - 1);
    }
    const uint64_t index = free_.back();
    free_.pop_back();
    slots_[index].object = std::move(object);
    return reinterpret_cast<Handle*>(static_cast<uint64_t>(kKind) << 48 | slots_[index].generation << 24 | index);
  }

  // NULL for anything that is not live.
  std::shared_ptr<T> find(const Handle* handle) const {
    const std::shared_lock lock(mutex_);
    return is_live(handle) ? slots_[index_of(handle)].object : nullptr;
  }

  // As find, and from then on the handle is stale.
  std::shared_ptr<T> take(const Handle* handle) {
    const std::unique_lock lock(mutex_);
    return is_live(handle) ? retire(index_of(handle)) : nullptr;
  }

  std::vector<std::shared_ptr<T>> take_all() {
    const std::unique_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> all;
    for (uint64_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].object) all.push_back(retire(i));
    return all;
  }

 private:
  static_assert(sizeof(Handle*) == 8, "handles need 64 bits");
  static constexpr uint64_t kMostSlots = (1u << 24) - 1, kLastGeneration = (1u << 24) - 1;
  struct Slot {
    std::shared_ptr<T> object;
    uint64_t generation = 1;
  };
  static uint64_t bits_of(const Handle* handle) { return reinterpret_cast<uint64_t>(handle); }
  static uint64_t index_of(const Handle* handle) { return bits_of(handle) & kMostSlots; }

  bool is_live(const Handle* handle) const {
    const uint64_t index = index_of(handle);
    return bits_of(handle) >> 48 == static_cast<uint64_t>(kKind) && index < slots_.size() && slots_[index].object &&
           slots_[index].generation == (bits_of(handle) >> 24 & kLastGeneration);
  }
  std::shared_ptr<T> retire(uint64_t index) {
    if (slots_[index].generation++ < kLastGeneration) free_.push_back(index);
    return std::move(slots_[index].object);
  }

  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> free_;
};

}  // namespace tc::kit
