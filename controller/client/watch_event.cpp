#include "controller/client/watch_event.h"

#include <fmt/format.h>

#include <utility>

#include "common/json/members.h"

namespace tilewright::kube {
namespace {

ApiError protocol_error(std::string message) {
  ApiError error;
  error.kind = ErrorKind::kProtocol;
  error.message = std::move(message);
  return error;
}

}  // namespace

ApiResult<WatchEvent> parse_watch_event(std::string_view text, FieldFilter filter) {
  auto tree = parse_event(text, filter);
  if (!tree.is_object()) return protocol_error("found a watch event that is not a JSON object");
  const auto type = tree.find("type");
  const auto object = tree.find("object");
  if (type == tree.end() || !type->is_string() || object == tree.end() || !object->is_object()) {
    return protocol_error("found a watch event without type and object");
  }
  const auto& name = type->get_ref<const std::string&>();
  if (name == "ERROR") return error_from_status(0, *object);
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
    return protocol_error(fmt::format("found a watch event of the unknown type {}", name));
  }
  event.resource_version = metadata_string(*object, "resourceVersion");
  if (event.resource_version.empty()) {
    return protocol_error("found a watch event without a resourceVersion");
  }
  event.object = std::move(*object);
  return event;
}

}  // namespace tilewright::kube
