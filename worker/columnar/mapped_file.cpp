#include "worker/columnar/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/base/file_descriptor.h"

namespace tilewright::columnar {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Location location(path.string());
  // O_NONBLOCK: a named pipe without a writer must not block.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) location.fail(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) {
    location.fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) location.fail("is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) location.fail(fmt::format("cannot map: {}", std::strerror(errno)));
  content_ = {static_cast<const std::byte*>(mapped), size};
}

MappedFile::~MappedFile() {
  if (!content_.empty()) munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

}  // namespace tilewright::columnar
