// Parses spec.elasticPolicy.rdzvConf of a manifest and --rdzv_conf of the agent, in torchrun's
// syntax.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace tilewright {

struct RdzvConf {
  bool tls = false;  // all traffic of the job's workers uses TLS
  // As torchrun's: a process whose heartbeats stay away for the product, in seconds, is lost.
  std::optional<double> keep_alive_interval, keep_alive_max_attempt;

  // The product, with torchrun's default for a key that is not set; nullopt: neither is set.
  std::optional<Duration> heartbeat_timeout() const;
  bool operator==(const RdzvConf&) const = default;
};

// Sets one key. Errors (kUsage): an unknown key, with the closest known one, or a bad value. The
// message omits the field or flag, which the caller puts in front.
Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value);

// Parses "key=value,key=value". An empty string sets nothing.
Status parse_rdzv_conf(RdzvConf& conf, std::string_view text);

// An Error (kUsage) if values that are valid each cannot be used together.
Status check(const RdzvConf& conf);

}  // namespace tilewright
