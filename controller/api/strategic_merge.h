// An overlay laid on a pod by Kubernetes' strategic merge: maps member by member, the lists of a
// pod that have a merge key entry by entry, everything else replaced. Without what removes:
// validate refuses null and directives ($patch).
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::api {

void strategic_merge(nlohmann::json& pod, const nlohmann::json& overlay);

}  // namespace tilewright::api
