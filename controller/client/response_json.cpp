#include "controller/client/response_json.h"

#include <simdjson.h>

#include <string>
#include <utility>

namespace tilewright::kube {
namespace {

using nlohmann::json;
namespace dom = simdjson::dom;

// Above the depth to which Go's JSON decoder reads.
constexpr std::size_t kMaxParsedDepth = 16384;

// Converts a parsed document into nlohmann::json, applying the filter.
class TreeBuilder {
 public:
  // `object_depth`: depth of the API objects in the document (0: the root is the object).
  TreeBuilder(int object_depth, FieldFilter filter)
      : object_depth_(object_depth), filter_(filter) {}

  json build(const dom::element& element, int depth = 0, std::string_view section = {}) {
    if (depth - object_depth_ > kMaxJsonDepth) {
      too_deep_ = true;
      return nullptr;
    }
    switch (element.type()) {
      case dom::element_type::OBJECT:
        return build(dom::object(element), depth, section);
      case dom::element_type::ARRAY: {
        json array = json::array();
        for (const dom::element one : dom::array(element)) {
          array.push_back(build(one, depth + 1, section));
        }
        return array;
      }
      case dom::element_type::STRING:
        return std::string_view(element);
      case dom::element_type::INT64: {
        const auto number = std::int64_t(element);
        return number < 0 ? json(number) : json(static_cast<std::uint64_t>(number));
      }
      case dom::element_type::UINT64:
        return std::uint64_t(element);
      case dom::element_type::DOUBLE:
        return double(element);
      case dom::element_type::BOOL:
        return bool(element);
      case dom::element_type::NULL_VALUE:
        break;
    }
    return nullptr;
  }

 private:
  json build(const dom::object& object, int depth, std::string_view section) {
    json tree = json::object();
    for (const auto [name, value] : object) {
      if (depth == object_depth_) section = name;
      if (depth == object_depth_ + 1 && !filter_(section, name)) continue;
      json& member = tree[std::string(name)] = build(value, depth + 1, section);
      if (depth == object_depth_ && std::exchange(too_deep_, false)) member = kTooDeep;
    }
    return tree;
  }

  const int object_depth_;
  const FieldFilter filter_;
  bool too_deep_ = false;  // the section in progress
};

// False if `text` is not JSON.
template <typename Root>
bool parse(dom::parser& parser, std::string_view text, Root& root) {
  // simdjson would give memcpy() the null pointer of an empty view.
  return !text.empty() && parser.allocate(text.size(), kMaxParsedDepth) == simdjson::SUCCESS &&
         parser.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS;
}

json parse(std::string_view text, TreeBuilder builder) {
  dom::parser parser;
  dom::element root;
  if (!parse(parser, text, root)) return json::value_t::discarded;
  return builder.build(root);
}

}  // namespace

bool exclude_managed_fields(std::string_view section, std::string_view member) {
  return member != "managedFields" || section != "metadata";
}

json parse_object(std::string_view text, FieldFilter filter) { return parse(text, {0, filter}); }
json parse_event(std::string_view text, FieldFilter filter) { return parse(text, {1, filter}); }

json parse_list(std::string_view text, const std::function<void(json&&)>& item,
                FieldFilter filter) {
  dom::parser parser;
  dom::object root;
  if (!parse(parser, text, root)) return json::value_t::discarded;
  TreeBuilder items(0, filter);
  TreeBuilder whole(0, [](std::string_view, std::string_view) { return true; });
  json list = json::object();
  for (const auto [name, value] : root) {
    dom::array array;
    if (name == "items" && value.get(array) == simdjson::SUCCESS) {
      for (const dom::element one : array) item(items.build(one));
      list["items"] = json::array();
    } else {
      list[std::string(name)] = whole.build(value);
    }
  }
  return list;
}

}  // namespace tilewright::kube
