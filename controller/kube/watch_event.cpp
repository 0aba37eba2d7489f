// {"type": "ADDED", "object": {...}}
#include "controller/kube/watch_event.h"

#include <fmt/format.h>

#include <utility>

#include "controller/api/json_members.h"

namespace tilewright::kube {
namespace {

ApiError not_understood(std::string message) {
  ApiError error;
  error.problem = Problem::kProtocol;
  error.message = std::move(message);
  return error;
}

}  // namespace

ApiResult<WatchEvent> parse_watch_event(std::string_view text, Wanted wanted) {
  auto tree = parse_event(text, wanted);
  if (!tree.is_object()) return not_understood("found a watch event that is no JSON object");
  const auto type = tree.find("type");
  const auto object = tree.find("object");
  if (type == tree.end() || !type->is_string() || object == tree.end() || !object->is_object()) {
    return not_understood("found a watch event without type and object");
  }
  const auto& name = type->get_ref<const std::string&>();
  if (name == "ERROR") return error_of_status(0, *object);
  WatchEvent event;
  if (name == "ADDED") {
    event.type = EventType::kAdded;
  } else if (name == "MODIFIED") {
    event.type = EventType::kModified;
  } else if (name == "DELETED") {
    event.type = EventType::kDeleted;
  } else if (name == "BOOKMARK") {
    event.type = EventType::kBookmark;
  } else {
    return not_understood(fmt::format("found a watch event of the unknown type {}", name));
  }
  event.resource_version = api::metadata_text(*object, "resourceVersion");
  if (event.resource_version.empty()) {
    return not_understood("found a watch event without a resourceVersion");
  }
  event.object = std::move(*object);
  return event;
}

}  // namespace tilewright::kube
