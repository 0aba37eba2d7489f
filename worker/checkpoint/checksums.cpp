#include "worker/checkpoint/checksums.h"

#include "worker/checkpoint/json_fields.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 53;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Failure(ExitCode::kCheckpoint, fmt::format("{}: {}", path.string(), what));
}

// The Trainer keeps its state in pickled files, which are not read.
void refuse_trainer_checkpoint(const fs::path& directory) {
  for (const char* name : {"optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"}) {
    if (!is_present(directory / name)) continue;
    fail(directory, fmt::format("is a checkpoint of Hugging Face's Trainer (it contains {}), "
                                "expected one of Tilewright; to train its weights further, use "
                                "them as --model_name_or_path",
                                name));
  }
}

}  // namespace

std::string checksums_json(const Checksums& checksums) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, digest] : checksums) {
    files[name] = {{"sha256", digest.sha256}, {"size", digest.size}};
  }
  return nlohmann::json{{"files", files}}.dump(2) + "\n";
}

Checksums read_checksums(const fs::path& directory) {
  const fs::path path = directory / kChecksumsFile;
  if (!has_readable_file(path)) refuse_trainer_checkpoint(directory);
  const JsonFields files = JsonFields(path, ExitCode::kCheckpoint, JsonFields::kMaxFileBytes,
                                      ExitCode::kOutputUnavailable)
                               .object("files");
  Checksums checksums;
  for (const auto& [name, unused] : files.json().items()) {
    if (!is_file_name(name)) fail(path, "found the name of a file outside its directory");
    const JsonFields entry = files.object(name);
    checksums[name] = {entry.string("sha256"),
                       static_cast<std::uint64_t>(entry.integer("size", 0, kMaxBytes))};
  }
  if (checksums.empty()) fail(path, "found no files, expected at least one");
  return checksums;
}

void verify_sizes(const fs::path& directory, const Checksums& checksums) {
  for (const auto& [name, digest] : checksums) {
    std::error_code error;
    const std::uint64_t size = fs::file_size(directory / name, error);
    if (says_absent(error.value())) {
      fail(directory / name, "is missing; checksums.json lists it");
    }
    if (error == std::errc::is_a_directory || error == std::errc::not_supported) {
      fail(directory / name, "is not a regular file");
    }
    if (error) fail_storage(directory / name, "stat", error.value());
    if (size != digest.size) {
      fail(directory / name,
           fmt::format("is {} bytes long, expected {} (checksums.json)", size, digest.size));
    }
  }
}

void verify_content(const fs::path& directory, const Checksums& checksums) {
  verify_sizes(directory, checksums);
  for (const auto& [name, digest] : checksums) {
    const FileDigest found = digest_of_output(directory / name, ExitCode::kCheckpoint);
    if (found.sha256 != digest.sha256) {
      fail(directory / name,
           fmt::format("is corrupt: found SHA-256 {}, expected {} (checksums.json)", found.sha256,
                       digest.sha256));
    }
  }
}

}  // namespace tilewright::checkpoint
