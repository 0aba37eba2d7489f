// An overlay laid on a pod by Kubernetes' strategic merge: maps member by member, the lists of a
// pod that have a merge key entry by entry, everything else replaced.
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::api {

// null in the overlay removes a member. `$patch: delete` removes and `$patch: replace` replaces the
// map or list entry that it stands in.
void strategic_merge(nlohmann::json& pod, const nlohmann::json& overlay);

}  // namespace tilewright::api
