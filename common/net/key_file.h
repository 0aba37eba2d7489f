// The file that holds the secret of a job: a random key in hexadecimal that only its owner can
// read. It is complete or absent: it is written under another name and then moved into place.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "common/net/secret.h"

namespace tilewright::net {

// Creates the file; keeps an existing one. Errors carry kOutput and name the path.
Status create_key_file(const std::filesystem::path& path);
// Creates or replaces the file.
Status replace_key_file(const std::filesystem::path& path);

// Creates or replaces the file with this key, whose bytes become the content.
Status write_key_file(const std::filesystem::path& path, const SecretKey& key);
// Whether the file holds a complete key as the functions above write it.
bool holds_whole_key(const std::filesystem::path& path);

}  // namespace tilewright::net
