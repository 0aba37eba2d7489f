// The ownership marker of an output directory: a JSON file that the worker writes and `tilewright
// up` reads.
#pragma once

namespace tilewright {

inline constexpr const char* kOwnershipMarkerFile = ".tilewright-job.json";
// The field with the UID of the job that owns the directory.
inline constexpr const char* kOwnerUidField = "job_uid";

}  // namespace tilewright
