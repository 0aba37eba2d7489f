#include "common/net/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>

#include "common/base/file_descriptor.h"
#include "common/base/files.h"
#include "common/base/strings.h"
#include "common/net/secret.h"

namespace tilewright::net {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const fs::path& path, int error) {
  return {ExitCode::kOutput,
          fmt::format("{}: cannot write the key: {}", path.string(), std::strerror(error))};
}

bool write_and_sync(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return fsync(fd) == 0;
}

std::string new_key() { return to_hex(SecretKey::random().bytes()); }

// Calls `move` with the name of a file that holds `text`; it returns whether it succeeded.
template <typename Move>
Status write_key(const fs::path& path, std::string_view text, Move move) {
  std::string staging = path.string() + ".XXXXXX";
  const FileDescriptor file(mkostemp(staging.data(), O_CLOEXEC));  // mode 0600
  if (!file) return cannot_write(path, errno);
  const bool moved = write_and_sync(file.get(), text) && move(staging.c_str());
  const int error = errno;
  unlink(staging.c_str());
  if (!moved) return cannot_write(path, error);
  return sync_path(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace

Status create_key_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return {};
  // link() does not replace a file that another process has created meanwhile.
  return write_key(path, new_key(), [&](const char* staging) {
    return link(staging, path.c_str()) == 0 || errno == EEXIST;
  });
}

Status replace_key_file(const fs::path& path) {
  return write_key(path, new_key(),
                   [&](const char* staging) { return std::rename(staging, path.c_str()) == 0; });
}

Status write_key_file(const fs::path& path, const SecretKey& key) {
  const std::string_view text(reinterpret_cast<const char*>(key.bytes().data()),
                              key.bytes().size());
  return write_key(path, text,
                   [&](const char* staging) { return std::rename(staging, path.c_str()) == 0; });
}

bool holds_whole_key(const fs::path& path) {
  const Result<SecretKey> key = SecretKey::from_file(path);
  return key.ok() && key->bytes().size() == 2 * SecretKey::kRandomBytes &&
         std::ranges::all_of(key->bytes(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace tilewright::net
