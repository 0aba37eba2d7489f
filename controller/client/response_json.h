// Parses API server responses with simdjson into nlohmann::json, keeping only the members that a
// filter selects. The controller does not use most of an object, so most of it is never copied.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright::kube {

// Returns true to keep the member of a section: ("metadata", "name"), ("spec", "nodeName").
// Members outside of sections, such as kind, are always kept.
using FieldFilter = bool (*)(std::string_view section, std::string_view member);

// Keeps everything except metadata.managedFields, which is about half of an object and which only
// clients with server-side apply need.
bool exclude_managed_fields(std::string_view section, std::string_view member);

// A section with a value nested more deeply than this is replaced with the string kTooDeep: readers
// of the tree may be recursive. The API server stores trees of up to 10000 levels in fields whose
// content the schema does not describe.
inline constexpr int kMaxJsonDepth = 128;
inline constexpr const char* kTooDeep = "(nested more than 128 levels deep)";

// All three parsers return a value with is_discarded() if `text` is not JSON.
nlohmann::json parse_object(std::string_view text, FieldFilter filter = exclude_managed_fields);
// {"type": ..., "object": ...}
nlohmann::json parse_event(std::string_view text, FieldFilter filter = exclude_managed_fields);
// {"items": [...], ...}: passes the items to `item` one by one and leaves the array empty, so that
// only one item at a time is in memory as a tree.
nlohmann::json parse_list(std::string_view text, const std::function<void(nlohmann::json&&)>& item,
                          FieldFilter filter = exclude_managed_fields);

}  // namespace tilewright::kube
