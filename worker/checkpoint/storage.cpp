#include "worker/checkpoint/storage.h"

#include <fcntl.h>

#include <cerrno>

#include "common/base/file_descriptor.h"
#include "common/base/files.h"

namespace tilewright::checkpoint {

namespace fs = std::filesystem;

bool says_absent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

void fail_storage(const fs::path& path, const char* action, const std::error_code& error) {
  throw Failure(output_error_code(error.value()),
                fmt::format("{}: cannot {}: {}", path.string(), action, error.message()));
}

fs::file_type type_at(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) fail_storage(path, "stat", error);
  return status.type();
}

bool is_present(const fs::path& path) { return type_at(path) != fs::file_type::not_found; }

bool has_readable_file(const fs::path& path) {
  // O_NONBLOCK: a named pipe without a writer must not block.
  if (FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) return true;
  const std::error_code error(errno, std::generic_category());
  if (!says_absent(error)) fail_storage(path, "open", error);
  return false;
}

}  // namespace tilewright::checkpoint
