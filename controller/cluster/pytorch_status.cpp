#include "controller/cluster/pytorch_status.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/json/members.h"
#include "controller/api/encode.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;

constexpr const char* kField = "tilewright";
constexpr const char* kReason = "OperatorState";

}  // namespace

json encode_status(const api::PyTorchJobStatus& status, StatusLayout layout) {
  json encoded = api::to_json(status);
  if (layout == StatusLayout::kField) return encoded;
  const json state = member(encoded, kField);
  encoded.erase(kField);
  if (!state.is_object()) return encoded;
  json condition = {{"type", kStateCondition},
                    {"status", std::string(to_string(api::ConditionStatus::kTrue))},
                    {"reason", kReason},
                    // Log lines may hold bytes that are no UTF-8.
                    {"message", state.dump(-1, ' ', false, json::error_handler_t::replace)}};
  // The last condition is the state that `kubectl get` shows, so this one comes first.
  json& conditions = encoded["conditions"];
  if (!conditions.is_array()) conditions = json::array();
  conditions.insert(conditions.begin(), std::move(condition));
  return encoded;
}

StatusLayout layout_of(const json& status) {
  const json& condition = element_with(member(status, "conditions"), "type", kStateCondition);
  return !condition.is_null() && member(status, kField).is_null() ? StatusLayout::kCondition
                                                                  : StatusLayout::kField;
}

void restore_state(json& object) {
  const auto status = object.find("status");
  if (status == object.end() || !status->is_object()) return;
  const auto conditions = status->find("conditions");
  if (conditions == status->end() || !conditions->is_array()) return;
  const auto found = std::ranges::find_if(*conditions, [](const json& condition) {
    return string_member(condition, "type") == kStateCondition;
  });
  if (found == conditions->end()) return;
  json state = json::parse(string_member(*found, "message"), nullptr, false);
  conditions->erase(found);
  if (state.is_object() && !status->contains(kField)) (*status)[kField] = std::move(state);
}

bool state_was_dropped(const json& written, const json& stored) {
  return written.contains(kField) && !stored.contains(kField);
}

}  // namespace tilewright::cluster
