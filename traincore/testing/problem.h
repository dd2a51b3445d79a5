// One call's arguments with tensors of their own: made from a schema and a case, poisoned and guarded.
#pragma once
#include <memory>

#include "traincore/testing/cases.h"

namespace tc::testing {

enum class Memory {
  poisoned,  // allocated and filled with NaN: what check runs on
  reserved,  // address space of zeros, paged in on use: any size can be described without having it
};

// Memory with guard bytes around what a call may touch, and a copy of it all to compare with afterwards.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, size_t offset, Memory memory = Memory::poisoned);
  std::byte* data() { return bytes_.get() + kGuard + offset_; }
  std::byte* begin() const { return bytes_.get(); }  // guards included
  size_t size() const { return size_; }
  void take_snapshot();
  // Element `p` was legitimately written: the snapshot takes its new value.
  void accept(const void* p, size_t size);
  bool unchanged() const;

 private:
  static constexpr size_t kGuard = 256;
  struct Free {
    size_t mapped;  // bytes of a mapping; 0: from operator new
    void operator()(std::byte* p) const;
  };
  size_t size_, offset_;
  std::unique_ptr<std::byte, Free> bytes_;
  std::vector<std::byte> snapshot_;
};

enum class Reals { storage, f64, f32 };  // the case's own dtypes, or every float tensor widened for an oracle

// The values of a case's tensors, by field name; "name[i]" in a list.
using Values = std::map<std::string, std::vector<double>, std::less<>>;

class Problem {
 public:
  Problem(const Pass& pass, const Case& c, int32_t storage_dtype, Reals reals, Memory memory = Memory::poisoned);
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void* args() const { return args_.get(); }
  bool has(const Field& f) const;
  // Visits every tensor that the call was given: (field, key in Values, tensor).
  void for_each(const std::function<void(const Field&, const std::string&, const tc_tensor&)>& visit) const;
  void write_inputs(const Values& values);  // in and state fields, and outputs that accumulate
  Values outputs() const;                   // out, saved and state fields
  void take_snapshots();
  bool unchanged() const;  // not one byte, since the snapshots
  // After the call: empty if only elements of outputs changed, else which tensor was written out of place.
  std::string written_out_of_place();
  const Pass& pass() const { return pass_; }
  // Every piece of memory behind the tensors, once each, and the tensors in it.
  void for_each_buffer(const std::function<void(GuardedBuffer&)>& visit) const;
  // A copy of the arguments in which every tensor is `place(tensor)`.
  class Moved moved(const std::function<tc_tensor(const tc_tensor&, const GuardedBuffer&)>& place) const;
  // An input, or an output whose old value counts in this case.
  bool reads(const Field& f) const;

 private:
  struct Tensor {
    const Field* field;
    std::string key;
    tc_tensor view;
    std::shared_ptr<GuardedBuffer> buffer;
  };
  Tensor make(const Field& f, const std::string& key, const std::vector<int64_t>& shape, int32_t dtype, Layout layout);
  void add_field(const Field& f, int32_t storage_dtype);
  std::vector<int64_t> shape_of(const Field& f) const;
  int32_t dtype_of(const Field& f, const std::string& key, int32_t storage_dtype) const;

  const Pass& pass_;
  const Case& case_;
  Reals reals_;
  Memory memory_;
  std::unique_ptr<std::byte[]> args_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<std::vector<tc_tensor>>> lists_;
};

// A problem's arguments with its tensors somewhere else.
class Moved {
 public:
  const void* args() const { return args_.get(); }

 private:
  friend class Problem;
  std::unique_ptr<std::byte[]> args_;
  std::vector<std::vector<tc_tensor>> lists_;
};

// What a case draws a tensor's elements from: its own fill, or normal numbers. Integers need one of their own.
Fill fill_of(const Pass& pass, const Case& c, const Field& f, int32_t dtype);
// The case, with every output of `forward` asked for that this backward problem reads.
Case with_saved(const Case& c, const Pass& forward, const Problem& backward);
// The random inputs of a pass, rounded to the dtypes they will be stored in. Equal names hold equal values in every
// pass; those of a forward pass and its results, if `known` holds them, are not drawn again.
Values random_inputs(const Pass& pass, const Case& c, int32_t storage_dtype, const Values& known = {});

}  // namespace tc::testing
