// Applies an overlay to a pod as a strategic merge patch of Kubernetes: merges objects by field and
// lists with a merge key by entry, and replaces everything else. Null and directives ($patch) would
// remove fields; they are not supported, and validate() rejects them.
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::api {

void strategic_merge(nlohmann::json& pod, const nlohmann::json& overlay);

}  // namespace tilewright::api
