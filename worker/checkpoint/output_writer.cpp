#include "worker/checkpoint/output_writer.h"

#include "common/base/printable.h"
#include "worker/checkpoint/ownership_marker.h"
#include "worker/checkpoint/safetensors_header.h"

namespace tilewright::checkpoint {

void OutputWriter::check() const {
  const auto marker = read_marker(directory_, ExitCode::kOutputUnavailable);
  if (marker && marker->writer == writer_) return;
  if (!marker) {
    throw Failure(ExitCode::kOutputUnavailable,
                  fmt::format("{}: is missing; expected the ownership marker that this process "
                              "has written",
                              (directory_ / kOwnershipMarkerFile).string()));
  }
  const std::string found =
      marker->writer.job_uid != writer_.job_uid
          ? fmt::format("job {} has taken it over", quoted_excerpt(marker->writer.job_uid))
          : fmt::format("a newer process of this job (epoch {}) writes to it",
                        marker->writer.epoch);
  throw Failure(ExitCode::kSuperseded,
                fmt::format("{}: {}; this process (epoch {}) no longer writes there",
                            directory_.string(), found, writer_.epoch));
}

void OutputWriter::throw_if_superseded() const {
  try {
    check();
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kSuperseded) throw;
  }
}

}  // namespace tilewright::checkpoint
