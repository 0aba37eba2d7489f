#include "worker/checkpoint/ownership_marker.h"

#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/files.h"
#include "worker/checkpoint/staging.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOverwriting = "overwriting";

// A complete marker under a staging name. A newer owner of the directory removes it like any other
// staging file, and it can then no longer become the marker.
class StagingMarker {
 public:
  StagingMarker(const fs::path& directory, const OwnershipMarker& marker)
      // The name of the marker begins with a dot already.
      : path_(directory / new_staging_name(kOwnershipMarkerFile + 1)) {
    nlohmann::json json = to_json(marker.writer);
    if (marker.overwriting) json[kOverwriting] = true;
    write_new_file(path_, json.dump(2) + "\n").or_throw();
  }
  ~StagingMarker() { unlink(path_.c_str()); }
  StagingMarker(const StagingMarker&) = delete;
  StagingMarker& operator=(const StagingMarker&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// An error that may pass is a Failure.
std::optional<OwnershipMarker> read_if_valid(const fs::path& directory) {
  try {
    return read_marker(directory, ExitCode::kOutput);
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kOutputUnavailable) throw;
    return std::nullopt;
  }
}

// Moves the staging marker into place. False: a newer owner has removed it, or another process has
// replaced the marker at the same time.
bool rename_into_place(const StagingMarker& staging, const fs::path& directory,
                       const OwnershipMarker& marker) {
  const fs::path target = directory / kOwnershipMarkerFile;
  if (rename(staging.path().c_str(), target.c_str()) != 0) {
    if (errno == ENOENT) return false;
    fail_storage(target, "rename into place", errno);
  }
  sync_path(directory).or_throw();
  return read_if_valid(directory) == marker;
}

}  // namespace

std::optional<OwnershipMarker> read_marker(const fs::path& directory, ExitCode code) {
  const fs::path file = directory / kOwnershipMarkerFile;
  std::error_code error;
  if (!fs::exists(file, error) && !error) return std::nullopt;
  const JsonFields fields(file, code, JsonFields::kMaxFileBytes, ExitCode::kOutputUnavailable);
  return OwnershipMarker{writer_from(fields), fields.boolean(kOverwriting, false)};
}

bool has_marker(const fs::path& directory, const OwnershipMarker& marker) {
  return read_if_valid(directory) == marker;
}

bool create_marker(const fs::path& directory, const OwnershipMarker& marker) {
  const StagingMarker staging(directory, marker);
  const fs::path target = directory / kOwnershipMarkerFile;
  // link() never replaces its target, also on NFS.
  if (link(staging.path().c_str(), target.c_str()) == 0) {
    sync_path(directory).or_throw();
    return true;
  }
  // ENOENT: a newer owner has removed the staging file. EEXIST: also if the reply to a successful
  // call was lost and the client repeated it.
  if (errno == ENOENT || errno == EEXIST) return read_if_valid(directory) == marker;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) {
    fail_storage(target, "create", errno);
  }
  // A file system without links: of two processes that both find no marker, the later one wins, and
  // the earlier one notices at the latest before its first commit.
  if (is_present(target)) return false;
  return rename_into_place(staging, directory, marker);
}

bool replace_marker(const fs::path& directory, const std::optional<OwnershipMarker>& expected,
                    const OwnershipMarker& marker) {
  // In this order, a newer owner either finds the staging file and removes it, or its marker is
  // found here.
  const StagingMarker staging(directory, marker);
  if (read_if_valid(directory) != expected) return false;
  return rename_into_place(staging, directory, marker);
}

}  // namespace tilewright::checkpoint
