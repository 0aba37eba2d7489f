#include "common/base/check.h"
#include "controller/client/api_error.h"
#include "controller/client/response_json.h"
#include "controller/client/watch_event.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

using nlohmann::json;

int depth_of(const json& tree) {
  int deepest = 0;
  if (!tree.is_structured()) return 0;
  for (const json& child : tree) deepest = std::max(deepest, depth_of(child));
  return deepest + 1;
}

void check_tree(const json& tree, int extra_depth) {
  if (tree.is_discarded()) return;
  const int depth = depth_of(tree);
  TW_CHECK(depth <= kube::kMaxJsonDepth + 1 + extra_depth, "a tree of {} levels", depth);
  (void)tree.dump(-1, ' ', false, json::error_handler_t::strict);  // simdjson checks UTF-8
}

}  // namespace

int fuzz_api_response(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  const json object = kube::parse_object(text);
  check_tree(object, 0);
  check_tree(kube::parse_event(text), 1);
  std::size_t items = 0;
  const json list = kube::parse_list(text, [&](json&& item) {
    check_tree(item, 0);
    ++items;
  });
  check_tree(list, 1);
  TW_CHECK(items == 0 || list["items"].is_array(), "a list with items has no items");

  if (!object.is_discarded()) {
    const json filtered = kube::parse_object(
        text, [](std::string_view section, std::string_view) { return section != "spec"; });
    TW_CHECK(filtered.type() == object.type(), "a filter changes the type of an object");
  }
  for (const int code : {0, 404, 409, 500}) {
    const kube::ApiError error = kube::error_from_response(code, text, std::nullopt);
    check_message(error.to_error().message);
    TW_CHECK(!error.retry_after || *error.retry_after <= std::chrono::hours(1),
             "a response asks for a very long pause");
  }
  return 0;
}

}  // namespace tilewright::fuzz
