#include "worker/checkpoint/checksums.h"

#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Failure(ExitCode::kCheckpoint, fmt::format("{}: {}", path.string(), what));
}

// A name inside the folder: the file itself says which others are read.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::string checksums_json(const Checksums& checksums) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, digest] : checksums) {
    files[name] = {{"sha256", digest.sha256}, {"size", digest.size}};
  }
  return nlohmann::json{{"files", files}}.dump(2) + "\n";
}

Checksums read_checksums(const fs::path& folder) {
  const fs::path path = folder / kChecksumsFile;
  const JsonFields files = JsonFields(path, ExitCode::kCheckpoint).object("files");
  Checksums checksums;
  for (const auto& [name, unused] : files.json().items()) {
    if (!is_plain_name(name)) fail(path, "names a file outside its folder");
    const JsonFields entry = files.object(name);
    checksums[name] = {entry.text("sha256"),
                       static_cast<std::uint64_t>(entry.whole_number("size", 0, kMostBytes))};
  }
  if (checksums.empty()) fail(path, "names no file");
  return checksums;
}

void verify_sizes(const fs::path& folder, const Checksums& checksums) {
  for (const auto& [name, digest] : checksums) {
    std::error_code error;
    const std::uint64_t size = fs::file_size(folder / name, error);
    if (error) fail(folder / name, "is missing, though checksums.json names it");
    if (size != digest.size) {
      fail(folder / name,
           fmt::format("is {} bytes long, expected {} by checksums.json", size, digest.size));
    }
  }
}

void verify_content(const fs::path& folder, const Checksums& checksums) {
  verify_sizes(folder, checksums);
  for (const auto& [name, digest] : checksums) {
    const FileDigest found = digest_of(folder / name, ExitCode::kCheckpoint);
    if (found.sha256 != digest.sha256) {
      fail(folder / name, fmt::format("is corrupt: found SHA-256 {}, expected {} by checksums.json",
                                      found.sha256, digest.sha256));
    }
  }
}

}  // namespace tilewright::checkpoint
