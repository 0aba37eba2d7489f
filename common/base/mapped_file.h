// A regular file that is mapped into memory for reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright {

// An access to content that another process has cut off, or that the storage cannot read, ends the
// process with `code` and a message on standard error: the first MappedFile sets a handler of
// SIGBUS, which leaves accesses to other memory to the handler before it. See also check_size(). A
// file that is replaced by rename stays as it was mapped.
class MappedFile {
 public:
  // Throws Failure with `code` that names the path unless it is a regular file that can be read and
  // no Git LFS pointer, and Failure(kMemory) without the address space for it.
  MappedFile(std::filesystem::path path, ExitCode code);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> content() const { return content_; }

  // A Failure if the file has been truncated since it was mapped.
  void check_size() const;

 private:
  friend class MappedFiles;
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  ExitCode code_;
  FileDescriptor file_;
  std::span<const std::byte> content_{};
  std::string lost_message_;  // for the handler of SIGBUS, which cannot format
};

}  // namespace tilewright
