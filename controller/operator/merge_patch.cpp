#include "controller/operator/merge_patch.h"

namespace tilewright::controller {

using nlohmann::json;

json merge_patch_between(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [name, value] : before.items()) {
    if (!after.contains(name)) patch[name] = nullptr;
  }
  for (const auto& [name, value] : after.items()) {
    const auto old = before.find(name);
    if (old == before.end()) {
      patch[name] = value;
    } else if (*old != value) {
      patch[name] =
          old->is_object() && value.is_object() ? merge_patch_between(*old, value) : value;
    }
  }
  return patch;
}

}  // namespace tilewright::controller
