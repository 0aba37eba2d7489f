// The right of a process to write to an output directory. It lasts until a newer process of the
// job, or another job, takes the directory over.
#pragma once

#include <filesystem>

#include "worker/checkpoint/writer.h"

namespace tilewright::checkpoint {

class OutputWriter {
 public:
  // `writer` is the one in the ownership marker; see acquire_output_dir().
  OutputWriter(std::filesystem::path directory, Writer writer)
      : directory_(std::move(directory)), writer_(std::move(writer)) {}

  const std::filesystem::path& directory() const { return directory_; }
  const Writer& writer() const { return writer_; }

  // Reads the ownership marker again; to be called before each commit. Failures: kSuperseded if the
  // marker names another writer, kOutputUnavailable if it is missing or cannot be read.
  void check() const;
  // Throws only kSuperseded: whether that is the cause of another failure.
  void throw_if_superseded() const;

 private:
  std::filesystem::path directory_;
  Writer writer_;
};

}  // namespace tilewright::checkpoint
