// The identity of a process that writes to an output directory. The ownership marker names the
// current writer, and each staging directory names its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {

// Begins the UID of a job that has none from the environment: a hash of its flags, data and
// starting weights follows.
inline constexpr std::string_view kHashedUidPrefix = "flags-";
// The UID of one launch of a job: "flags-1b2c/launch-id". The UID of a job has no slash.
inline std::string uid_of_launch(std::string_view job_uid, std::string_view launch) {
  return std::string(job_uid).append("/").append(launch);
}

struct Writer {
  std::string job_uid;
  std::uint64_t epoch = 0;  // of the membership; a later one ends all earlier writers
  std::string id;           // random: tells two writers of one epoch apart
  bool operator==(const Writer&) const = default;
};

// A random id of a writer.
std::string new_writer_id();

nlohmann::json to_json(const Writer& writer);
// Failures have the code of `fields`.
Writer writer_from(const JsonFields& fields);

}  // namespace tilewright::checkpoint
