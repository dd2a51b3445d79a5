#include "traincore/train/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "traincore/core/fail.h"
#include "traincore/train/file.h"

namespace tc::train {
namespace {

void check(int openssl_result) {
  if (openssl_result != 1) fail(TC_ERR_INTERNAL, "OpenSSL could not compute SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr)); }

void Sha256::update(const void* data, size_t bytes) { check(EVP_DigestUpdate(context_.get(), data, bytes)); }

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr));
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string sha256_of_file(const std::string& path) {
  constexpr int64_t kBlock = 1 << 20;
  const InputFile file(path);
  std::vector<char> block(kBlock);
  Sha256 hash;
  for (int64_t at = 0; at < file.size(); at += kBlock) {
    const int64_t bytes = std::min(kBlock, file.size() - at);
    file.read(at, block.data(), bytes);
    hash.update(block.data(), static_cast<size_t>(bytes));
  }
  return hash.finish();
}

}  // namespace tc::train
