// What a manifest's spec.elasticPolicy.rdzvConf and the agent's --rdzv_conf may say: keys and
// values as torchrun's, where one has them.
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace tilewright {

struct RdzvConf {
  bool tls = false;  // all traffic of the job's workers under TLS
};

// Takes one setting. The Error's sentence (kUsage) is for after the name of the place: an unknown
// key with the nearest known one, or a value that is none.
Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value);

// "tls=true,other=value": torchrun's form. Empty: nothing is set.
Status parse_rdzv_conf(RdzvConf& conf, std::string_view text);

}  // namespace tilewright
