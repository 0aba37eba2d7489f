// What the API server answers, as JSON trees of what is wanted of an object: by far the most of its
// text is of no use to whoever reads it, and is passed over without becoming a tree.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright::kube {

// Whether to keep a member of a section of an object: "metadata" and "name", "spec" and "nodeName".
// What does not stand in a section (kind, or a ConfigMap's data) is kept anyhow.
using Wanted = bool (*)(std::string_view section, std::string_view member);

// All but metadata.managedFields: a good half of an object's text, and of no use to a controller
// that applies nothing.
bool all_but_managers(std::string_view section, std::string_view member);

// All three: is_discarded() of the result where the text is no JSON.
nlohmann::json parse_object(std::string_view text, Wanted wanted = all_but_managers);
// {"type": ..., "object": ...}
nlohmann::json parse_event(std::string_view text, Wanted wanted = all_but_managers);
// {"items": [...], ...}: hands the items over one by one and leaves the array empty, so that a page
// of large objects is never a tree as a whole.
nlohmann::json parse_list(std::string_view text, const std::function<void(nlohmann::json&&)>& item,
                          Wanted wanted = all_but_managers);

}  // namespace tilewright::kube
