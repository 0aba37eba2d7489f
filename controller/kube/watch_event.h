// One event of a watch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/kube/answer_json.h"
#include "controller/kube/api_error.h"

namespace tilewright::kube {

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  EventType type = EventType::kAdded;
  nlohmann::json object;         // of a bookmark: little more than its resourceVersion
  std::string resource_version;  // the place to go on from
};

// An ERROR event is the Status that it holds, as an error: Problem::kGone asks for a new list.
ApiResult<WatchEvent> parse_watch_event(std::string_view text, Wanted wanted = all_but_managers);

}  // namespace tilewright::kube
