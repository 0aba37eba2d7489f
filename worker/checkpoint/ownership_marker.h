// The ownership marker of an output directory: the writer that owns it. It is always complete, also
// on file systems without RENAME_NOREPLACE (NFS), and at most one of several processes creates it
// or replaces the same one.
#pragma once

#include <filesystem>
#include <optional>

#include "common/contract/output_owner.h"
#include "worker/checkpoint/writer.h"

namespace tilewright::checkpoint {

struct OwnershipMarker {
  Writer writer;
  // The writer has not yet removed the checkpoints of the directory's earlier owner.
  bool overwriting = false;
  bool operator==(const OwnershipMarker&) const = default;
};

// nullopt: there is no marker. A Failure of `code` if it cannot be read.
std::optional<OwnershipMarker> read_marker(const std::filesystem::path& directory, ExitCode code);

// Whether the directory has this marker. A Failure with kOutputUnavailable: an error that may pass.
bool has_marker(const std::filesystem::path& directory, const OwnershipMarker& marker);

// False: another process has created a marker. Failures have output_error_code().
bool create_marker(const std::filesystem::path& directory, const OwnershipMarker& marker);

// Replaces the marker if it still is `expected` (nullopt: unreadable). False: another process has
// replaced it, before or just after. Failures have output_error_code().
bool replace_marker(const std::filesystem::path& directory,
                    const std::optional<OwnershipMarker>& expected, const OwnershipMarker& marker);

}  // namespace tilewright::checkpoint
