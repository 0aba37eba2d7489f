// Assigns an output directory to one job, and within the job to one writer. The same job resumes in
// the directory; another job is refused unless it may overwrite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "worker/checkpoint/output_writer.h"

namespace tilewright::checkpoint {

// Who asks for an output directory.
struct OutputRequest {
  std::string job_uid;
  // Must be above the epoch in the ownership marker of the same job. nullopt: a process without a
  // coordinator, which takes the directory over in the epoch after that one.
  std::optional<std::uint64_t> membership_epoch;
  bool overwrite = false;
  // Whether an overwritten directory keeps its checkpoints, because the training continues from one
  // of them.
  bool keep_checkpoints = false;
  // A copy of a request is the same writer: it may try again after an error that came when the
  // marker was written already.
  std::string writer_id = new_writer_id();
};

// The job has written to the output directory in `epoch`, which is not before that of the request.
class LaterEpochFailure : public Failure {
 public:
  LaterEpochFailure(std::uint64_t epoch, const std::string& message)
      : Failure(ExitCode::kSuperseded, message), epoch_(epoch) {}
  std::uint64_t epoch() const { return epoch_; }

 private:
  std::uint64_t epoch_;
};

enum class OutputOwnership {
  kNew,          // created or empty
  kResumed,      // belongs to this job
  kOverwritten,  // belonged to another job or had other content
};

// Throws Failure with ExitCode::kOutput if `output_dir` is a file or a directory that cannot be
// written, or is missing and cannot be created, and with kOutputUnavailable for an error that may
// pass. Creates nothing.
void require_usable_output_dir(const std::filesystem::path& output_dir);

// The UID of the directory's owner if that is a launch (uid_of_launch) of the job, else `job_uid`.
// Throws Failure(kOutputUnavailable) for an error that may pass.
std::string uid_to_continue(const std::filesystem::path& output_dir, const std::string& job_uid);

// Returns what acquire_output_dir() would return, but writes nothing, so that a training can run
// its other checks before it changes the directory. Throws Failure with ExitCode::kOutput if
// `output_dir` is a file, is not writable, or (without `overwrite`) belongs to another job or has
// other content, with kOutputUnavailable for an error that may pass, and LaterEpochFailure.
OutputOwnership check_output_dir(const std::filesystem::path& output_dir,
                                 const OutputRequest& request);

// Creates the directory and its parents if necessary, and writes the ownership marker. From then on
// no earlier writer can change anything in it. If two jobs do this concurrently, only one of them
// succeeds. Overwriting removes only checkpoints that this program wrote; files of the final output
// are replaced when they are written. Failures have output_error_code(), or kSuperseded if the job
// has written in a later epoch.
OutputWriter acquire_output_dir(const std::filesystem::path& output_dir,
                                const OutputRequest& request);

// Removes the ownership marker of an output directory that has nothing else, so that another job
// can use it. False: it has other content. Throws kSuperseded if another process owns the
// directory, and failures with output_error_code().
bool release_empty_output_dir(const OutputWriter& output);

}  // namespace tilewright::checkpoint
