// SHA-256 (FIPS 180-4) by OpenSSL: the sum that `sha256sum` prints and the Hugging Face hub lists, so that a checkpoint
// can be checked without this program.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace tc::train {

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  std::string finish();  // 64 lower-case hexadecimal digits; nothing may follow

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Errors: as InputFile.
std::string sha256_of_file(const std::string& path);

}  // namespace tc::train
