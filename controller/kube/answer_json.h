// What the API server answers, as JSON trees without metadata.managedFields: a good half of an
// object's text, and of no use to a controller that applies nothing.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright::kube {

// All three: is_discarded() of the result where the text is no JSON.
nlohmann::json parse_object(std::string_view text);
// {"type": ..., "object": ...}
nlohmann::json parse_event(std::string_view text);
// {"items": [...], ...}: hands the items over one by one and leaves the array empty, so that a page
// of large objects is never a tree as a whole.
nlohmann::json parse_list(std::string_view text, const std::function<void(nlohmann::json&&)>& item);

}  // namespace tilewright::kube
