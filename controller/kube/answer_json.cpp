#include "controller/kube/answer_json.h"

#include <simdjson.h>

#include <string>
#include <utility>

namespace tilewright::kube {
namespace {

using nlohmann::json;
namespace dom = simdjson::dom;

// Makes trees of what is wanted of a parsed text. Its depth, and so the recursion's, is bounded by
// the parser.
class TreeBuilder {
 public:
  // `object_depth`: how many containers an object as the API has it stands in.
  TreeBuilder(int object_depth, Wanted wanted) : object_depth_(object_depth), wanted_(wanted) {}

  json build(const dom::element& element, int depth = 0, std::string_view section = {}) const {
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
  json build(const dom::object& object, int depth, std::string_view section) const {
    json tree = json::object();
    for (const auto [name, value] : object) {
      if (depth == object_depth_) section = name;
      if (depth == object_depth_ + 1 && !wanted_(section, name)) continue;
      tree[std::string(name)] = build(value, depth + 1, section);
    }
    return tree;
  }

  const int object_depth_;
  const Wanted wanted_;
};

json parse(std::string_view text, const TreeBuilder& builder) {
  dom::parser parser;
  dom::element root;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS) {
    return json::value_t::discarded;
  }
  return builder.build(root);
}

}  // namespace

bool all_but_managers(std::string_view section, std::string_view member) {
  return member != "managedFields" || section != "metadata";
}

json parse_object(std::string_view text, Wanted wanted) { return parse(text, {0, wanted}); }
json parse_event(std::string_view text, Wanted wanted) { return parse(text, {1, wanted}); }

json parse_list(std::string_view text, const std::function<void(json&&)>& item, Wanted wanted) {
  dom::parser parser;
  dom::object root;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS) {
    return json::value_t::discarded;
  }
  const TreeBuilder items(0, wanted);
  const TreeBuilder whole(0, [](std::string_view, std::string_view) { return true; });
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
