// The checksum that a hub's ETag is: the SHA-256 of the content for a file stored with git LFS, the
// SHA-1 of git's blob object ("blob SIZE\0" and the content) for others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tilewright::hub {

class BlobDigest {
 public:
  // 64 hexadecimal digits: SHA-256; 40: git's SHA-1. Any other ETag, which only servers other than
  // the hub send, has no known checksum.
  BlobDigest(std::string etag, std::uint64_t size);
  ~BlobDigest();
  BlobDigest(const BlobDigest&) = delete;
  BlobDigest& operator=(const BlobDigest&) = delete;

  bool known() const { return algorithm_ != nullptr; }
  const char* algorithm() const { return algorithm_; }  // "SHA-256"; null if there is none
  void update(std::string_view bytes);
  void restart();
  // The checksum of all bytes since restart(), as the ETag writes it. Empty if none is known.
  std::string hex();

 private:
  struct State;
  const std::string etag_;
  const std::uint64_t size_;
  const char* algorithm_ = nullptr;
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::hub
