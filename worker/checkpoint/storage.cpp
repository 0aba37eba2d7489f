#include "worker/checkpoint/storage.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/base/file_descriptor.h"
#include "common/base/files.h"

namespace tilewright::checkpoint {

namespace fs = std::filesystem;

bool says_absent(int error) { return error == ENOENT || error == ENOTDIR; }

void fail_storage(const fs::path& path, std::string_view action, int error) {
  throw Failure(output_error_code(error),
                fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(error)));
}

fs::file_type type_at(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) fail_storage(path, "stat", error.value());
  return status.type();
}

bool is_present(const fs::path& path) { return type_at(path) != fs::file_type::not_found; }

bool has_readable_file(const fs::path& path) {
  // O_NONBLOCK: a named pipe without a writer must not block.
  if (FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) return true;
  if (!says_absent(errno)) fail_storage(path, "open", errno);
  return false;
}

}  // namespace tilewright::checkpoint
