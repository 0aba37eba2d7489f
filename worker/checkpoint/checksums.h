// Reads, writes and verifies checksums.json: the SHA-256 and size of each file of a directory.
// Errors of the file system other than that a file is absent are Failures with output_error_code().
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "worker/checkpoint/hashed_file.h"

namespace tilewright::checkpoint {

inline constexpr const char* kChecksumsFile = "checksums.json";

using Checksums = std::map<std::string, FileDigest>;  // by file name

std::string checksums_json(const Checksums& checksums);

// Throws Failure with ExitCode::kCheckpoint; the message names the file, or says that the directory
// is a checkpoint of Hugging Face's Trainer.
Checksums read_checksums(const std::filesystem::path& directory);

// Checks that every file exists with its size. Fast; detects truncated files.
void verify_sizes(const std::filesystem::path& directory, const Checksums& checksums);
// Checks the size and SHA-256 of every file.
void verify_content(const std::filesystem::path& directory, const Checksums& checksums);

}  // namespace tilewright::checkpoint
