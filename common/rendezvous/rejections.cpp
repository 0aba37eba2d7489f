#include "common/rendezvous/rejections.h"

#include <fmt/format.h>

namespace tilewright::rendezvous {

const char* to_string(Rejection reason) {
  switch (reason) {
    case Rejection::kConnections:
      return "connections";
    case Rejection::kUnauthenticated:
      return "unauthenticated";
    case Rejection::kSource:
      return "source";
    case Rejection::kNoProof:
      return "no_proof";
    case Rejection::kAddress:
      return "address";
    case Rejection::kJobConnections:
      return "job_connections";
    case Rejection::kJobBuffers:
      return "job_buffers";
    case Rejection::kJobMessages:
      return "job_messages";
    case Rejection::kJobData:
      return "job_data";
    case Rejection::kBuffers:
      return "buffers";
    case Rejection::kProtocol:
      return "protocol";
    case Rejection::kVersion:
      return "version";
  }
  return "unknown";
}

Rejections::Rejections(std::shared_ptr<Logger> log, std::string server,
                       std::span<const Rejection> reasons)
    : log_(std::move(log)), server_(std::move(server)) {
  for (const Rejection reason : reasons) counts_[to_string(reason)] = 0;
}

void Rejections::add(Rejection reason, const std::string& job_uid, const std::string& peer,
                     const std::string& why, MonotonicTime now) {
  ++counts_[to_string(reason)];
  std::erase_if(lines_, [&](const auto& entry) {
    return entry.second.left_out == 0 && now - entry.second.written >= kLogInterval;
  });
  const auto [entry, first] = lines_.try_emplace({reason, job_uid});
  Line& line = entry->second;
  if (!first && now - line.written < kLogInterval) {
    ++line.left_out;
    return;
  }
  log_->warn("{}: rejected {}{}: {}{}", server_, peer,
             job_uid.empty() ? "" : fmt::format(" of job {}", job_uid), why,
             line.left_out == 0
                 ? ""
                 : fmt::format(" ({} similar rejections since the last such line)", line.left_out));
  line = {now, 0};
}

}  // namespace tilewright::rendezvous
