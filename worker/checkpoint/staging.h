// Staging directories and files: hidden entries next to their target with random names, so that no
// two processes share one, not even in containers where every process has the id 1. Each names its
// writer. The owner of the output directory removes those of ended writers, in one rename each:
// from then on an ended writer that continues, for example after SIGCONT, cannot move anything out
// of its staging directory or into it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/checkpoint/writer.h"

namespace tilewright::checkpoint {

// ".NAME.tmp-RANDOM", with 16 random hexadecimal digits.
std::string new_staging_name(const std::string& name);
bool is_staging_name(const std::string& name);

class StagingDirectory {
 public:
  // Creates PARENT/.NAME.tmp-RANDOM. Failures have output_error_code().
  StagingDirectory(const std::filesystem::path& parent, const std::string& name,
                   const Writer& writer);
  // Removes the directory with its content. What cannot be removed, such as the silly rename of a
  // file that is open on NFS, remains for remove_staging_of_ended_writers().
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Removes the staging directories and files in `parent` whose writers have ended: those of other
// jobs, of earlier epochs, and of other writers of the same epoch. `owner` is the writer that the
// ownership marker names. Keeps those that name no writer. Returns the removed names. Failures
// have output_error_code().
std::vector<std::string> remove_staging_of_ended_writers(const std::filesystem::path& parent,
                                                         const Writer& owner);

}  // namespace tilewright::checkpoint
