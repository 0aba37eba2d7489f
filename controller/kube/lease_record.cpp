// Leases to and from JSON.
#include "controller/kube/lease_record.h"

#include <fmt/format.h>

namespace tilewright::kube {

LeaseRecord decode_lease(const nlohmann::json& lease) {
  LeaseRecord record;
  const auto spec = lease.find("spec");
  if (spec == lease.end() || !spec->is_object()) return record;
  const auto text = [&spec](const char* name, std::string& target) {
    const auto found = spec->find(name);
    if (found != spec->end() && found->is_string()) target = found->get<std::string>();
  };
  const auto number = [&spec](const char* name, std::int64_t& target) {
    const auto found = spec->find(name);
    if (found != spec->end() && found->is_number_integer()) target = found->get<std::int64_t>();
  };
  text("holderIdentity", record.holder);
  text("acquireTime", record.acquire_time);
  text("renewTime", record.renew_time);
  number("leaseDurationSeconds", record.lease_seconds);
  number("leaseTransitions", record.transitions);
  return record;
}

void encode_lease(const LeaseRecord& record, nlohmann::json& lease) {
  lease["spec"] = {{"holderIdentity", record.holder},
                   {"leaseDurationSeconds", record.lease_seconds},
                   {"acquireTime", record.acquire_time},
                   {"renewTime", record.renew_time},
                   {"leaseTransitions", record.transitions}};
}

std::string to_micro_time(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - whole);
  std::string text = to_rfc3339(whole);
  text.pop_back();  // the Z
  return fmt::format("{}.{:06}Z", text, rest.count());
}

}  // namespace tilewright::kube
