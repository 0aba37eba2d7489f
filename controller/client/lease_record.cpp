#include "controller/client/lease_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/json/timestamp.h"

namespace tilewright::kube {
namespace {

constexpr std::int64_t kMaxTransitions = std::numeric_limits<std::int32_t>::max() - 1;

}  // namespace

LeaseRecord decode_lease(const nlohmann::json& lease) {
  LeaseRecord record;
  const auto spec = lease.find("spec");
  if (spec == lease.end() || !spec->is_object()) return record;
  const auto read_string = [&spec](const char* name, std::string& target) {
    const auto found = spec->find(name);
    if (found != spec->end() && found->is_string()) target = found->get<std::string>();
  };
  const auto read_integer = [&spec](const char* name, std::int64_t most, std::int64_t& target) {
    const auto found = spec->find(name);
    if (found == spec->end() || !found->is_number_integer()) return;
    // An unsigned value above the signed range would become negative.
    const bool large = found->is_number_unsigned() &&
                       found->get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    target = large ? most : std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, most);
  };
  read_string("holderIdentity", record.holder);
  read_string("acquireTime", record.acquire_time);
  read_string("renewTime", record.renew_time);
  read_integer("leaseDurationSeconds", kMaxLeaseSeconds, record.lease_seconds);
  read_integer("leaseTransitions", kMaxTransitions, record.transitions);
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
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - seconds);
  std::string text = to_rfc3339(seconds);
  text.pop_back();  // the Z
  return fmt::format("{}.{:06}Z", text, rest.count());
}

}  // namespace tilewright::kube
