#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/files.h"

namespace tilewright {

MappedFile::MappedFile(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), code_(code) {
  // O_NONBLOCK: a named pipe without a writer must not block.
  file_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_) fail(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.get(), 0);
  if (mapped == MAP_FAILED) fail(fmt::format("cannot map: {}", std::strerror(errno)));
  content_ = {static_cast<const std::byte*>(mapped), size};
  const std::string_view text(static_cast<const char*>(mapped), size);
  if (const Status usable = refuse_lfs_pointer(path_, text, code_); !usable.ok()) {
    munmap(mapped, size);
    usable.or_throw();
  }
}

MappedFile::~MappedFile() {
  if (!content_.empty()) munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

void MappedFile::check_size() const {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (static_cast<std::size_t>(status.st_size) < content_.size()) {
    fail(fmt::format("has been truncated: found {} bytes, expected {}", status.st_size,
                     content_.size()));
  }
}

void MappedFile::fail(const std::string& what) const {
  throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
}

}  // namespace tilewright
