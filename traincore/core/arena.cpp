#include "traincore/core/arena.h"

#include <memory>
#include <vector>

namespace tc {
namespace {

struct FreeAligned {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{Arena::kAlignment}); }
};
struct Block {
  std::unique_ptr<void, FreeAligned> memory;
  size_t bytes = 0;
};
struct ThreadArena {
  std::vector<Block> blocks;  // one per nesting depth
  size_t depth = 0;
};

ThreadArena& this_thread() {
  thread_local ThreadArena arena;
  return arena;
}

}  // namespace

ThreadScratch::ThreadScratch(size_t bytes) : data_(nullptr) {
  ThreadArena& arena = this_thread();
  if (arena.depth == arena.blocks.size()) arena.blocks.emplace_back();
  Block& block = arena.blocks[arena.depth];
  if (block.bytes < bytes) {
    block.memory.reset();
    block.bytes = 0;
    block.memory.reset(::operator new (bytes, std::align_val_t{Arena::kAlignment}));
    block.bytes = bytes;
  }
  data_ = block.memory.get();
  ++arena.depth;
}

ThreadScratch::~ThreadScratch() { --this_thread().depth; }

}  // namespace tc
