#include "worker/checkpoint/hashed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/files.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

constexpr std::size_t kBlock = 1u << 20;  // small enough to be hashed and written from the cache

// `fail(action)` throws for the error in errno.
template <typename Fail>
FileDigest read_digest(const std::filesystem::path& path, const Fail& fail) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open");
  Sha256 sha;
  FileDigest digest;
  std::vector<char> block(kBlock);
  ssize_t got = 0;
  while ((got = read(fd, block.data(), block.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    sha.update(block.data(), static_cast<std::size_t>(got));
    digest.size += static_cast<std::uint64_t>(got);
  }
  const int saved = errno;
  close(fd);
  errno = saved;
  if (got < 0) fail("read");
  digest.sha256 = sha.hex();
  return digest;
}

}  // namespace

HashedFile::HashedFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_storage(path_, "create", errno);
}

HashedFile::~HashedFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

void HashedFile::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    auto block = bytes.first(std::min(bytes.size(), kBlock));
    bytes = bytes.subspan(block.size());
    sha_.update(block.data(), block.size());
    while (!block.empty()) {
      const ssize_t written = ::write(fd_, block.data(), block.size());
      if (written >= 0) {
        block = block.subspan(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        fail_storage(path_, "write", errno);
      }
    }
  }
}

FileDigest HashedFile::finish() {
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) {
    const int saved = errno;
    unlink(path_.c_str());
    errno = saved;
    fail_storage(path_, "close", errno);
  }
  return {sha_.hex(), size_};
}

FileDigest write_hashed(const std::filesystem::path& path, std::string_view content) {
  HashedFile file(path);
  file.write(std::as_bytes(std::span(content)));
  return file.finish();
}

FileDigest digest_of(const std::filesystem::path& path, ExitCode code) {
  return read_digest(path, [&](const char* action) {
    throw Failure(code,
                  fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
  });
}

FileDigest digest_of_output(const std::filesystem::path& path, ExitCode absent) {
  return read_digest(path, [&](const char* action) {
    if (!says_absent(errno)) fail_storage(path, action, errno);
    throw Failure(absent,
                  fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
  });
}

}  // namespace tilewright::checkpoint
