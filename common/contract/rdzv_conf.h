// Parses spec.elasticPolicy.rdzvConf of a manifest and --rdzv_conf of the agent, in torchrun's
// syntax.
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace tilewright {

struct RdzvConf {
  bool tls = false;  // all traffic of the job's workers uses TLS
};

// Sets one key. Errors (kUsage): an unknown key, with the closest known one, or a bad value. The
// message omits the field or flag, which the caller puts in front.
Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value);

// Parses "key=value,key=value". An empty string sets nothing.
Status parse_rdzv_conf(RdzvConf& conf, std::string_view text);

}  // namespace tilewright
