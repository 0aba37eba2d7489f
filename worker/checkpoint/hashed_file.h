// Computes the SHA-256 of files: of new files during the write, and of existing files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sha256.h"

namespace tilewright::checkpoint {

struct FileDigest {
  std::string sha256;  // 64 hexadecimal digits
  std::uint64_t size = 0;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// A new file. Failures have output_error_code(). The file is removed unless finish() succeeded.
class HashedFile {
 public:
  explicit HashedFile(std::filesystem::path path);
  ~HashedFile();
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;
  void write(std::span<const std::byte> bytes);
  FileDigest finish();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  Sha256 sha_;
  std::uint64_t size_ = 0;
};

FileDigest write_hashed(const std::filesystem::path& path, std::string_view content);

// Reads the whole file. Throws Failure with `code`.
FileDigest digest_of(const std::filesystem::path& path, ExitCode code);
// The same for a file of an output directory: throws Failure with `absent` if there is none, other
// Failures have output_error_code().
FileDigest digest_of_output(const std::filesystem::path& path, ExitCode absent);

}  // namespace tilewright::checkpoint
