// The JSON merge patch (RFC 7396) that makes one object of another: what goes over the wire where
// little of a large object has changed.
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::manager {

// Both are objects. Empty when they are equal. Values of `after` are never null.
nlohmann::json merge_patch_between(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace tilewright::manager
