// Computes a JSON merge patch (RFC 7396), to send only the changed fields of a large object.
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::controller {

// Both arguments must be objects, without null values in `after`. Empty if they are equal.
nlohmann::json merge_patch_between(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace tilewright::controller
