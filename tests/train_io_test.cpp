// Files of the trainer: safetensors, atomic writes, hashes.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "scratch.h"
#include "traincore/train/atomic_file.h"
#include "traincore/train/hash.h"
#include "traincore/train/safetensors.h"

namespace {

using namespace tc::train;
using tc::testing::content_of;
using tc::testing::error_of;
using tc::testing::mentions;
using tc::testing::ScratchFolder;

std::string safetensors_bytes(std::string_view header, std::string_view data, int64_t length = -1) {
  const uint64_t n = length < 0 ? header.size() : static_cast<uint64_t>(length);
  return std::string(reinterpret_cast<const char*>(&n), 8).append(header).append(data);
}

std::string error_of_file(const ScratchFolder& folder, std::string_view bytes) {
  const std::string path = folder.write("file.safetensors", bytes);
  const std::string error = error_of([&] { SafetensorsFile{path}; });
  EXPECT_TRUE(error.empty() || mentions(error, path));
  return error;
}

template <class T>
NamedTensor tensor(const std::string& name, std::vector<T>& values, int32_t dtype, std::vector<int64_t> shape) {
  return {name, tc_tensor_dense(values.data(), dtype, static_cast<int32_t>(shape.size()), shape.data())};
}

TEST(Safetensors, what_is_written_is_read) {
  const ScratchFolder folder;
  std::vector<float> matrix{1, -2, 3.5f, 4, 5, 6}, scalar{7}, none;
  std::vector<uint8_t> odd{1, 2, 255};
  std::vector<double> wide{1e300, -0.0};
  std::vector<uint16_t> half{0x3f80};
  OutputFile file(folder / "a.safetensors");
  const NamedTensor written[] = {
      tensor("odd", odd, TC_DTYPE_U8, {3}),           tensor("half", half, TC_DTYPE_BF16, {1, 1}),
      tensor("matrix", matrix, TC_DTYPE_F32, {2, 3}), tensor("scalar", scalar, TC_DTYPE_F32, {}),
      tensor("none", none, TC_DTYPE_F32, {0, 4}),     tensor("wide", wide, TC_DTYPE_F64, {2})};
  write_safetensors(file, written, {{"format", "pt"}, {"quote\"d", "line\n"}});
  const std::string hash = file.finish();
  EXPECT_EQ(hash, sha256_of_file(folder / "a.safetensors"));

  const SafetensorsFile read(folder / "a.safetensors");
  EXPECT_EQ(read.tensors().size(), std::size(written));
  EXPECT_EQ(read.metadata().at("quote\"d"), "line\n");
  for (const NamedTensor& w : written) {
    const tc_tensor* r = read.find(w.name);
    ASSERT_TRUE(r != nullptr) << w.name;
    EXPECT_EQ(r->dtype, w.tensor.dtype);
    ASSERT_EQ(r->rank, w.tensor.rank);
    size_t bytes = tc_dtype_size(r->dtype);
    for (int i = 0; i < r->rank; ++i) {
      EXPECT_EQ(r->shape[i], w.tensor.shape[i]);
      bytes *= static_cast<size_t>(r->shape[i]);
    }
    EXPECT_EQ(bytes ? std::memcmp(r->data, w.tensor.data, bytes) : 0, 0) << w.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(r->data) % tc_dtype_size(r->dtype), 0u) << w.name;
  }
  EXPECT_EQ(read.find("matri"), nullptr);
}

TEST(Safetensors, a_tensor_at_an_odd_offset_is_readable) {
  const ScratchFolder folder;
  const float value = 2.5f;
  const std::string bytes(reinterpret_cast<const char*>(&value), 4);
  for (const std::string pad : {"", " ", "  ", "   "}) {
    const SafetensorsFile file(
        folder.write("odd.safetensors",
                     safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})" + pad, bytes)));
    EXPECT_EQ(*static_cast<const float*>(file.find("a")->data), value);
  }
}

TEST(Safetensors, malformed_files_are_refused_with_a_sentence) {
  const ScratchFolder folder;
  const auto header = [](std::string_view entries) { return std::string("{").append(entries).append("}"); };
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string data(8, 'x');
  ASSERT_EQ(error_of_file(folder, safetensors_bytes(header(good), data)), "");

  const struct {
    std::string bytes;
    const char* mention;
  } cases[] = {
      {"", "too few"},
      {"short", "too few"},
      {safetensors_bytes("", "", 0), "not plausible"},
      {safetensors_bytes("", "", int64_t{1} << 62), "not plausible"},
      {safetensors_bytes("", "", 100'000'001), "not plausible"},
      {safetensors_bytes(header(good), "", 5000), "cut short"},
      {safetensors_bytes("{\"a\":", ""), "not valid JSON"},
      {safetensors_bytes("{\"\xff\":1}", ""), "not valid JSON"},
      {safetensors_bytes("{\"a\":1e9999}", ""), "not valid JSON"},
      {safetensors_bytes(std::string(100000, '['), ""), "not valid JSON"},
      {safetensors_bytes("[1]", ""), "not a JSON object"},
      {safetensors_bytes(header(good), "xxxxxxx"), "cut short"},
      {safetensors_bytes(header(good), data + "y"), "belong to no tensor"},
      {safetensors_bytes(header(good + "," + good), data), "\"a\" twice"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"), data),
       "\"shape\" twice"},
      {safetensors_bytes(header(R"("a":7)"), data), "no \"dtype\""},
      {safetensors_bytes(header(R"("a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})"), data), "F8_E4M3"},
      {safetensors_bytes(header(R"("a":{"dtype":3,"shape":[2],"data_offsets":[0,8]})"), data), "dtype 3"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","data_offsets":[0,8]})"), data), "\"shape\""},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2]})"), data), "\"data_offsets\""},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0]})"), data), "1 data_offsets"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), data), "-2"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), data), "2.0"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), data), "need 12"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), data),
       "2^63"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"), data),
       "not a size"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})"), data),
       "9 dimensions"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), data), "ends before"},
      {safetensors_bytes(header(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]})"), data), "cut short"},
      {safetensors_bytes(header(R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), data),
       "belong to no tensor"},
      {safetensors_bytes(header(good + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), data), "overlaps"},
      {safetensors_bytes(header(good + R"(,"__metadata__":{"a":1})"), data), "not a string"},
      {safetensors_bytes(header(good + R"(,"__metadata__":[])"), data), "__metadata__"},
  };
  for (const auto& c : cases) EXPECT_TRUE(mentions(error_of_file(folder, c.bytes), c.mention));
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile(folder / "absent"); }), "No such file"));
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile(folder.path()); }), "is a directory"));
}

TEST(Safetensors, no_truncation_and_no_flipped_bit_of_the_header_crashes) {
  const ScratchFolder folder;
  const std::string good = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})", "12345678");
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(error_of_file(folder, good.substr(0, length)), "") << length;
  for (size_t bit = 0; bit < 8 * (good.size() - 8); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    error_of_file(folder, flipped);
  }
}

TEST(Safetensors, offsets_beyond_four_gigabytes) {
  const ScratchFolder folder;
  constexpr int64_t kBig = 5'000'000'000;
  const std::string path =
      folder.write("big.safetensors",
                   safetensors_bytes(R"({"big":{"dtype":"U8","shape":[5000000000],"data_offsets":[0,5000000000]},)"
                                     R"("last":{"dtype":"I32","shape":[1],"data_offsets":[5000000000,5000000004]}} )",
                                     ""));
  const auto begin = static_cast<int64_t>(std::filesystem::file_size(path));
  const int32_t value = 424242;
  const Descriptor file(open(path.c_str(), O_WRONLY));
  ASSERT_EQ(pwrite(file.get(), "\x07", 1, begin + kBig - 1), 1);
  ASSERT_EQ(pwrite(file.get(), &value, sizeof value, begin + kBig), 4);
  const SafetensorsFile read(path);
  EXPECT_EQ(static_cast<const uint8_t*>(read.find("big")->data)[kBig - 1], 7);
  EXPECT_EQ(*static_cast<const int32_t*>(read.find("last")->data), value);
}

TEST(Safetensors, the_writer_refuses_what_it_cannot_store) {
  const ScratchFolder folder;
  OutputFile file(folder / "a");
  std::vector<float> values(6);
  const NamedTensor twice[] = {tensor("a", values, TC_DTYPE_F32, {2}), tensor("a", values, TC_DTYPE_F32, {2})};
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(file, twice); }), "twice"));
  NamedTensor strided[] = {tensor("a", values, TC_DTYPE_F32, {2, 2})};
  strided[0].tensor.stride[0] = 3;
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(file, strided); }), "not dense"));
  const NamedTensor unknown[] = {tensor("a", values, 77, {2})};
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(file, unknown); }), "dtype 77"));
  EXPECT_EQ(file.size(), 0);
}

TEST(Hash, sha256_is_the_published_one) {
  Sha256 hash;
  hash.update("abc", 3);
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Runs `body` in a child process, which ends without unwinding, as after kill -9.
template <class F>
void in_killed_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST(AtomicFile, replaces_the_content) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(content_of(path), "new");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(AtomicFile, a_writer_killed_half_way_leaves_the_old_file) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "old");
  in_killed_child([&] {
    OutputFile half(path + std::string(kTemporary));
    half.write("ne");
  });
  EXPECT_EQ(content_of(path), "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(content_of(path), "new");
}

TEST(AtomicFile, a_folder_appears_whole_or_not_at_all) {
  const ScratchFolder folder;
  const std::string path = folder / "step";
  const auto stage = [&](std::string_view text, bool commit) {
    StagedFolder staged(path);
    OutputFile file(staged.file("a"));
    file.write(text);
    file.finish();
    if (commit) staged.commit();
  };
  stage("dropped", false);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  stage("first", true);
  in_killed_child([&] {
    StagedFolder staged(path);
    OutputFile(staged.file("stale")).write("half");
    _exit(0);
  });
  EXPECT_TRUE(std::filesystem::exists(path + ".tmp"));
  EXPECT_EQ(content_of(path + "/a"), "first");
  stage("second", true);
  EXPECT_EQ(content_of(path + "/a"), "second");
  EXPECT_FALSE(std::filesystem::exists(path + "/stale"));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(AtomicFile, a_link_is_replaced) {
  const ScratchFolder folder;
  link_atomically(folder / "latest", "one");
  link_atomically(folder / "latest", "two");
  EXPECT_EQ(std::filesystem::read_symlink(folder / "latest"), "two");
}

TEST(AtomicFile, a_folder_has_one_run_at_a_time) {
  const ScratchFolder folder;
  {
    const Descriptor lock = lock_folder(folder.path());
    EXPECT_TRUE(mentions(error_of([&] { (void)lock_folder(folder.path()); }), "in use by another run"));
  }
  EXPECT_GE(lock_folder(folder.path()).get(), 0);
}

TEST(AtomicFile, a_full_disk_is_one_sentence) {
  OutputFile full("/dev/full");
  EXPECT_TRUE(mentions(error_of([&] { full.write("x"); }), "cannot write /dev/full: No space left on device"));
  const ScratchFolder folder;
  EXPECT_TRUE(mentions(error_of([&] { write_file_atomically(folder / "no/such/folder", "x"); }), "No such file"));
}

TEST(AtomicFile, a_limit_on_the_file_size_leaves_the_old_file) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "old");
  in_killed_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool refused =
        mentions(error_of([&] { write_file_atomically(path, std::string(5000, 'x')); }), "File too large");
    _exit(refused ? 0 : 1);
  });
  EXPECT_EQ(content_of(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

}  // namespace
