// The settings that spec.elasticPolicy.rdzvConf of a manifest and --rdzv_conf of the agent share.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace tilewright {

inline constexpr std::array<std::string_view, 3> kRdzvConfKeys = {"tls", "keep_alive_interval",
                                                                  "keep_alive_max_attempt"};
// A worker sends a heartbeat every second.
inline constexpr Duration kLeastHeartbeatTimeout = std::chrono::seconds(3);
inline constexpr Duration kMostHeartbeatTimeout = std::chrono::hours(24);
inline constexpr double kMostKeepAlive = 86400;  // of each of the two keys

struct RdzvConf {
  bool tls = false;  // all traffic of the job's workers uses TLS
  // As torchrun's: a process is lost if it sends no heartbeat for the product, in seconds.
  std::optional<double> keep_alive_interval = {}, keep_alive_max_attempt = {};

  // The product, with torchrun's default for a key that is not set; nullopt: neither is set.
  std::optional<Duration> heartbeat_timeout() const;
  bool operator==(const RdzvConf&) const = default;
};

// Sets one key. Errors (kUsage): an unknown key, with the closest known one, or a bad value. The
// message omits the field or flag, which the caller puts in front.
Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value);

// An Error (kUsage) if each value is valid, but not their combination.
Status check(const RdzvConf& conf);

}  // namespace tilewright
