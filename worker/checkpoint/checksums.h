// checksums.json: the SHA-256 and size of each file of a folder, written with them, read back
// before they are used.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "worker/checkpoint/hashed_file.h"

namespace tilewright::checkpoint {

inline constexpr const char* kChecksumsFile = "checksums.json";

using Checksums = std::map<std::string, FileDigest>;  // by file name

std::string checksums_json(const Checksums& checksums);

// Failures carry kCheckpoint and name the file.
Checksums read_checksums(const std::filesystem::path& folder);

// Every file there with its size: cheap, finds what was cut short.
void verify_sizes(const std::filesystem::path& folder, const Checksums& checksums);
// Every byte as it was written.
void verify_content(const std::filesystem::path& folder, const Checksums& checksums);

}  // namespace tilewright::checkpoint
