#include "controller/kube/answer_json.h"

#include <string>
#include <utility>
#include <vector>

namespace tilewright::kube {
namespace {

using nlohmann::json;

// For json::sax_parse.
class TreeBuilder {
 public:
  // `object_depth`: how many containers an object as the API has it stands in.
  TreeBuilder(std::size_t object_depth, Wanted wanted,
              const std::function<void(json&&)>* item = nullptr)
      : object_depth_(object_depth), wanted_(wanted), item_(item) {}

  json& tree() { return root_; }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(json::number_integer_t value) { return put(value); }
  bool number_unsigned(json::number_unsigned_t value) { return put(value); }
  bool number_float(json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(json::value_t::object); }
  bool start_array(std::size_t) { return open(json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

  bool key(std::string& name) {
    if (passed_over_ > 0) return true;
    name_ = std::move(name);
    const bool in_object = item_ == nullptr || (open_.size() > 1 && open_[1] == items_);
    if (!in_object) return true;
    if (open_.size() == object_depth_ + 1) section_ = name_;
    if (open_.size() == object_depth_ + 2) unwanted_ = !wanted_(section_, name_);
    return true;
  }

 private:
  bool put(json&& value) {
    if (passed_over_ > 0 || std::exchange(unwanted_, false)) return true;
    place(std::move(value));
    return true;
  }

  bool open(json::value_t type) {
    if (passed_over_ > 0 || std::exchange(unwanted_, false)) {
      ++passed_over_;
      return true;
    }
    json& placed = place(type);
    if (open_.size() == 1 && name_ == "items") items_ = &placed;
    open_.push_back(&placed);
    return true;
  }

  bool close() {
    if (passed_over_ > 0) {
      --passed_over_;
      return true;
    }
    json& whole = *open_.back();
    open_.pop_back();
    if (item_ != nullptr && open_.size() == 2 && open_[1] == items_) {
      (*item_)(std::move(whole));
      items_->clear();
    }
    return true;
  }

  json& place(json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    json& parent = *open_.back();
    if (parent.is_object()) return parent[name_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  const std::size_t object_depth_;
  const Wanted wanted_;
  const std::function<void(json&&)>* const item_;
  json root_;
  // Root first. They stay where they are: an array does not grow while an element of it is open.
  std::vector<json*> open_;
  json* items_ = nullptr;  // the root's array of that name, once it has begun
  std::string name_;       // of the member whose value comes next
  std::string section_;
  bool unwanted_ = false;        // that value
  std::size_t passed_over_ = 0;  // containers that are open in an unwanted value, itself included
};

json parse(std::string_view text, TreeBuilder builder) {
  if (!json::sax_parse(text, &builder)) return json::value_t::discarded;
  return std::move(builder.tree());
}

}  // namespace

bool all_but_managers(std::string_view section, std::string_view member) {
  return member != "managedFields" || section != "metadata";
}

json parse_object(std::string_view text, Wanted wanted) { return parse(text, {0, wanted}); }
json parse_event(std::string_view text, Wanted wanted) { return parse(text, {1, wanted}); }
json parse_list(std::string_view text, const std::function<void(json&&)>& item, Wanted wanted) {
  return parse(text, {2, wanted, &item});
}

}  // namespace tilewright::kube
