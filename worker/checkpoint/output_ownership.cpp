#include "worker/checkpoint/output_ownership.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/printable.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/ownership_marker.h"
#include "worker/checkpoint/staging.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Failure(ExitCode::kOutput, fmt::format("{}: {}", path.string(), what));
}

// Creates the output directory and its missing parents; removes them again unless keep() is called.
class CreatedDirectories {
 public:
  explicit CreatedDirectories(const fs::path& directory) {
    std::vector<fs::path> missing;
    std::error_code error;
    for (fs::path path = directory; !path.empty() && !is_present(path); path = path.parent_path()) {
      if (path.has_filename()) missing.push_back(path);
      if (path == path.parent_path()) break;
    }
    for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
      if (fs::create_directory(*path, error)) created_.push_back(*path);
      if (error) {
        remove_created();
        fail_storage(directory, "create the output directory", error.value());
      }
    }
  }
  ~CreatedDirectories() { remove_created(); }
  CreatedDirectories(const CreatedDirectories&) = delete;
  CreatedDirectories& operator=(const CreatedDirectories&) = delete;
  void keep() { created_.clear(); }

 private:
  void remove_created() {
    for (auto path = created_.rbegin(); path != created_.rend(); ++path) rmdir(path->c_str());
    created_.clear();
  }
  std::vector<fs::path> created_;
};

// The name of an entry, or nullopt for an empty directory. Ignores lost+found of a new volume,
// staging directories and `ignored`.
std::optional<std::string> foreign_entry(const fs::path& directory, std::string_view ignored = "") {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name != "lost+found" && name != ignored && !is_staging_name(name)) return name;
  }
  if (error) fail_storage(directory, "list the output directory", error.value());
  return std::nullopt;
}

void require_writable_directory(const fs::path& directory) {
  if (type_at(directory) != fs::file_type::directory) {
    refuse(directory, "is a file, expected a directory");
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    throw Failure(output_error_code(errno),
                  fmt::format("{}: the output directory cannot be written: {}", directory.string(),
                              std::strerror(errno)));
  }
}

struct OutputStatus {
  OutputOwnership ownership;
  bool has_marker = false;
  std::optional<OwnershipMarker> marker;  // nullopt also if it is invalid and will be overwritten
};

void require_later_epoch(const fs::path& directory, const OutputRequest& request,
                         const Writer& owner) {
  if (!request.membership_epoch || *request.membership_epoch > owner.epoch) return;
  throw LaterEpochFailure(
      owner.epoch, fmt::format("{}: this job has written there in membership epoch {}, but this is "
                               "epoch {}; expected a later one",
                               directory.string(), owner.epoch, *request.membership_epoch));
}

// The status of a directory with a marker.
OutputStatus check_marker(const fs::path& directory, const OutputRequest& request) {
  OutputStatus status{OutputOwnership::kOverwritten, true, std::nullopt};
  try {
    status.marker = read_marker(directory, ExitCode::kOutput);
  } catch (const Failure& failure) {
    // A marker that cannot be read now may be this job's, whose checkpoints are not overwritten.
    if (!request.overwrite || failure.code() == ExitCode::kOutputUnavailable) throw;
  }
  if (status.marker && status.marker->writer.job_uid == request.job_uid) {
    if (status.marker->writer.id != request.writer_id) {
      require_later_epoch(directory, request, status.marker->writer);
    }
    if (!status.marker->overwriting) status.ownership = OutputOwnership::kResumed;
    return status;
  }
  if (!request.overwrite) {
    refuse(directory,
           fmt::format("belongs to job {}, but this is job {}{}; use another --output_dir, or "
                       "--overwrite_output_dir to replace its content",
                       quoted_excerpt(status.marker ? status.marker->writer.job_uid : ""),
                       quoted_excerpt(request.job_uid),
                       request.job_uid.starts_with(kHashedUidPrefix)
                           ? ", which has other flags, data, starting weights or another number "
                             "of processes (see --nominal_workers)"
                           : ""));
  }
  return status;
}

// The status of an existing directory. Throws all Failures that can be detected without writing.
OutputStatus check_existing(const fs::path& directory, const OutputRequest& request) {
  require_writable_directory(directory);
  // A marker that cannot be opened is not an invalid one, which may be overwritten.
  if (has_readable_file(directory / kOwnershipMarkerFile)) return check_marker(directory, request);
  const auto foreign = foreign_entry(directory);
  // Another process may have written the first marker since.
  if (foreign && has_readable_file(directory / kOwnershipMarkerFile)) {
    return check_marker(directory, request);
  }
  if (!foreign) return {OutputOwnership::kNew, false, std::nullopt};
  if (request.overwrite) return {OutputOwnership::kOverwritten, false, std::nullopt};
  refuse(directory,
         fmt::format("is not empty (it contains {}) and does not belong to a job; use an empty or "
                     "new --output_dir, or --overwrite_output_dir to replace its content",
                     *foreign));
}

std::uint64_t epoch_of(const OutputRequest& request, const OutputStatus& found) {
  if (request.membership_epoch) return *request.membership_epoch;
  const bool same_job = found.marker && found.marker->writer.job_uid == request.job_uid;
  return same_job ? found.marker->writer.epoch + 1 : 1;
}

// Writes the marker of a new writer; tries again as long as other processes write theirs. A process
// of an earlier epoch that has read the marker before this one replaced it has a staging file. Once
// those are removed, no such process can replace the marker any more.
OwnershipMarker write_marker(const fs::path& directory, const OutputRequest& request) {
  constexpr int kMaxAttempts = 16;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const OutputStatus found = check_existing(directory, request);
    OwnershipMarker marker{{request.job_uid, epoch_of(request, found), request.writer_id},
                           found.ownership == OutputOwnership::kOverwritten};
    if (found.has_marker ? replace_marker(directory, found.marker, marker)
                         : create_marker(directory, marker)) {
      remove_staging_of_ended_writers(directory, marker.writer);
      if (has_marker(directory, marker)) return marker;
    }
  }
  throw Failure(ExitCode::kSuperseded,
                fmt::format("{}: other processes have replaced the ownership marker {} times in a "
                            "row; expected one process to start in a directory",
                            directory.string(), kMaxAttempts));
}

// Until the marker says that this is done, a restarted process continues here and does not resume
// from another job's checkpoints.
void finish_overwriting(const OutputWriter& output, const OwnershipMarker& marker,
                        bool keep_checkpoints) {
  if (!keep_checkpoints) {
    for (const fs::path& checkpoint : list_checkpoints(output.directory())) {
      remove_atomically(output, checkpoint.filename());
    }
  }
  if (!replace_marker(output.directory(), marker, {marker.writer, false})) output.check();
}

}  // namespace

void require_usable_output_dir(const fs::path& output_dir) {
  if (is_present(output_dir)) return require_writable_directory(output_dir);
  // acquire_output_dir() creates it in the nearest directory that exists.
  fs::path parent = output_dir;
  while (!parent.empty() && !is_present(parent) && parent != parent.parent_path()) {
    std::error_code error;
    const fs::path target = fs::read_symlink(parent, error);
    if (!error) {
      refuse(parent, fmt::format("is a symbolic link to {}, which does not exist, expected a "
                                 "directory",
                                 excerpt(target.string())));
    }
    parent = parent.parent_path();
  }
  if (parent.empty()) parent = ".";
  if (type_at(parent) != fs::file_type::directory) {
    refuse(parent, "is a file, expected a directory");
  }
  if (access(parent.c_str(), W_OK | X_OK) != 0) {
    const int error = errno;
    fail_storage(output_dir, fmt::format("create the output directory in {}", parent.string()),
                 error);
  }
}

std::string uid_to_continue(const fs::path& output_dir, const std::string& job_uid) {
  try {
    const std::optional<OwnershipMarker> marker = read_marker(output_dir, ExitCode::kOutput);
    const bool is_launch = marker && marker->writer.job_uid.starts_with(uid_of_launch(job_uid, ""));
    return is_launch ? marker->writer.job_uid : job_uid;
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kOutputUnavailable) throw;
    return job_uid;  // check_output_dir() refuses it
  }
}

OutputOwnership check_output_dir(const fs::path& output_dir, const OutputRequest& request) {
  if (!is_present(output_dir)) return OutputOwnership::kNew;
  return check_existing(output_dir, request).ownership;
}

OutputWriter acquire_output_dir(const fs::path& output_dir, const OutputRequest& request) {
  TW_CHECK(!request.job_uid.empty(), "acquire_output_dir() without a job UID");
  CreatedDirectories created(output_dir);
  const OwnershipMarker marker = write_marker(output_dir, request);
  created.keep();
  OutputWriter output(output_dir, marker.writer);
  if (marker.overwriting) finish_overwriting(output, marker, request.keep_checkpoints);
  return output;
}

bool release_empty_output_dir(const OutputWriter& output) {
  if (foreign_entry(output.directory(), kOwnershipMarkerFile)) return false;
  output.check();
  const fs::path marker = output.directory() / kOwnershipMarkerFile;
  if (unlink(marker.c_str()) != 0) fail_storage(marker, "remove", errno);
  sync_path(output.directory()).or_throw();
  return true;
}

}  // namespace tilewright::checkpoint
