// Changes to an output directory that happen completely or not at all. New files are written to a
// staging directory, synced, and moved into place after the ownership marker was read again. A
// process that dies before that leaves only its staging directory, which readers ignore.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "worker/checkpoint/output_writer.h"
#include "worker/checkpoint/staging.h"

namespace tilewright::checkpoint {

// A directory, or several files, to be added to an output directory. Failures have
// output_error_code(), or kSuperseded if `output` is no longer the writer.
class AtomicDirectory {
 public:
  // Creates the staging directory in output.directory(). `output` must outlive the object.
  AtomicDirectory(const OutputWriter& output, const std::string& name);
  // Removes the staging directory with what was not committed.
  ~AtomicDirectory() = default;
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Calls `write` with the directory to write files to. May be called several times.
  void fill(const std::function<void(const std::filesystem::path&)>& write) const;

  // Makes it OUTPUT/NAME. An existing one is replaced, atomically where the file system can
  // exchange two directories.
  void commit();

  // Moves the files into the output directory itself, which cannot be replaced: it may be a mount
  // point and has other content. `last` is one of the files: it is removed first and moved last, so
  // that whenever `last` exists, all new files exist.
  void commit_files(const std::string& last);

 private:
  void commit_with(const std::function<void()>& move_into_place);
  void sync() const;

  const OutputWriter& output_;
  const std::string name_;
  StagingDirectory staging_;
  std::filesystem::path content_;
  bool committed_ = false;
};

// Removes a directory in the output directory so that readers never see a part of it. The same
// Failures.
void remove_atomically(const OutputWriter& output, const std::string& name);

}  // namespace tilewright::checkpoint
