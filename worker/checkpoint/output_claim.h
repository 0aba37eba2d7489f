// Whose an output folder is: it carries its job's UID in .tilewright-job.json. The same job resumes
// in it, another is refused unless told to overwrite.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::checkpoint {

inline constexpr const char* kClaimFile = ".tilewright-job.json";

enum class Claim {
  kNew,          // made, or found empty
  kResumed,      // this job's own
  kOverwritten,  // another's, or of unknown content; its checkpoints of ours were removed
};

// What claim_output() would give, and its refusals as far as they show without writing. Changes
// nothing: a start that is refused for another reason leaves everything as it was.
Claim examine_output(const std::filesystem::path& output_dir, const std::string& job_uid,
                     bool overwrite);

// Makes the folder (and its parents) where there is none, and claims it. Only one of two jobs that
// claim at the same time gets it. Overwriting removes checkpoints that this program wrote there and
// nothing else: files of the final output are replaced when they are written. Refusals are Failures
// with kOutput and leave everything as it was.
Claim claim_output(const std::filesystem::path& output_dir, const std::string& job_uid,
                   bool overwrite);

}  // namespace tilewright::checkpoint
