// A data file mapped into memory, read-only.
#pragma once

#include <filesystem>

#include "worker/columnar/byte_reader.h"

namespace tilewright::columnar {

// Another process that truncates the file while it is mapped causes SIGBUS on access. The hub
// client and `datasets` replace files by rename, which leaves the mapped file as it is.
class MappedFile {
 public:
  // Throws Failure(kData) that names the path unless it is a regular file that can be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes content() const { return content_; }

 private:
  Bytes content_{};
};

}  // namespace tilewright::columnar
