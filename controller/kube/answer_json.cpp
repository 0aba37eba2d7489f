#include "controller/kube/answer_json.h"

#include <utility>

namespace tilewright::kube {
namespace {

using nlohmann::json;
using Event = json::parse_event_t;

// For json::parse: false leaves out what was begun or has just been read. Depths are counted as
// there: a member of the root, key and value, has depth 1.
class Filter {
 public:
  // `object_depth`: of objects as the API has them; their members are one deeper.
  Filter(int object_depth, const std::function<void(json&&)>* item)
      : metadata_depth_(object_depth + 1), item_(item) {}

  bool operator()(int depth, Event event, json& parsed) {
    if (event == Event::key) {
      if (depth == 1) in_items_ = parsed == "items";
      if (depth == metadata_depth_) in_metadata_ = parsed == "metadata";
      dropping_ = dropping_ && depth > metadata_depth_ + 1;
      if (in_metadata_ && depth == metadata_depth_ + 1) dropping_ = parsed == "managedFields";
      return !dropping_;
    }
    if (depth <= metadata_depth_) dropping_ = false;  // the metadata's own end
    if (dropping_) return false;
    constexpr int kItem = 2;
    if (item_ != nullptr && in_items_ && depth == kItem && event == Event::object_end) {
      (*item_)(std::move(parsed));
      return false;
    }
    return true;
  }

 private:
  const int metadata_depth_;
  const std::function<void(json&&)>* item_;
  bool in_items_ = false;
  bool in_metadata_ = false;
  bool dropping_ = false;
};

json parse(std::string_view text, int object_depth,
           const std::function<void(json&&)>* item = nullptr) {
  return json::parse(text, Filter(object_depth, item), false);
}

}  // namespace

json parse_object(std::string_view text) { return parse(text, 0); }
json parse_event(std::string_view text) { return parse(text, 1); }
json parse_list(std::string_view text, const std::function<void(json&&)>& item) {
  return parse(text, 2, &item);
}

}  // namespace tilewright::kube
