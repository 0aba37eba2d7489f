// Files read with a bound and written so that a reader sees the old content or the new, never half.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright {

// The whole file; an Error with `code` that names the path when it is missing, unreadable or larger
// than max_bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                              ExitCode code);

// Writes beside `path`, syncs, renames over it and syncs the folder. Errors carry kOutput.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// fsync of a file or a folder.
Status sync_path(const std::filesystem::path& path);

}  // namespace tilewright
