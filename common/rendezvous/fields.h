// Typed, bounded access to the fields of a JSON object that came from a socket. The first thing
// that is wrong is kept; what is read after it has default values.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/result.h"

namespace tilewright::rendezvous {

class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("", "is no object");
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return least;
    // An unsigned value above the signed range fails is_in_range by its own type.
    const bool fits = field->is_number_integer() &&
                      (!field->is_number_unsigned() ||
                       field->get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    const std::int64_t value = fits ? field->get<std::int64_t>() : 0;
    if (fits && value >= least && value <= most) return value;
    fail(name, fmt::format("is not an integer from {} to {}", least, most));
    return least;
  }

  std::uint64_t unsigned64(const char* name) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return 0;
    if (field->is_number_unsigned()) return field->get<std::uint64_t>();
    fail(name, "is not an unsigned integer");
    return 0;
  }

  // null stands for what is not finite.
  double number(const char* name) {
    const nlohmann::json* field = find(name);
    if (field == nullptr || field->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (field->is_number()) return field->get<double>();
    fail(name, "is not a number");
    return 0;
  }

  std::string text(const char* name, std::size_t most) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return "";
    if (field->is_string() && field->get_ref<const std::string&>().size() <= most)
      return field->get<std::string>();
    fail(name, fmt::format("is not a text of at most {} bytes", most));
    return "";
  }

  bool boolean(const char* name) {
    const nlohmann::json* field = find(name);
    if (field != nullptr && field->is_boolean()) return field->get<bool>();
    if (field != nullptr) fail(name, "is neither true nor false");
    return false;
  }

  bool has(const char* name) const { return object_.is_object() && object_.contains(name); }

  // An array of at most `most` elements, or an empty one.
  const nlohmann::json& array(const char* name, std::size_t most) {
    static const nlohmann::json kNone = nlohmann::json::array();
    const nlohmann::json* field = find(name);
    if (field == nullptr) return kNone;
    if (field->is_array() && field->size() <= most) return *field;
    fail(name, fmt::format("is not an array of at most {}", most));
    return kNone;
  }

  const nlohmann::json& object(const char* name, std::size_t most) {
    static const nlohmann::json kNone = nlohmann::json::object();
    const nlohmann::json* field = find(name);
    if (field == nullptr) return kNone;
    if (field->is_object() && field->size() <= most) return *field;
    fail(name, fmt::format("is not an object of at most {} fields", most));
    return kNone;
  }

  void fail(const std::string& name, const std::string& what) {
    if (!ok_) return;
    ok_ = false;
    message_ = name.empty() ? fmt::format("{} {}", where_, what)
                            : fmt::format("{}: {} {}", where_, name, what);
  }
  // Takes over what is wrong with a part of this object.
  void take(const Fields& part) {
    if (!part.ok_) fail("", part.message_);
  }
  bool ok() const { return ok_; }
  Error error() const { return {ExitCode::kPeerLost, message_}; }

 private:
  const nlohmann::json* find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    fail(name, "is missing");
    return nullptr;
  }

  const nlohmann::json& object_;
  std::string where_;
  std::string message_;
  bool ok_ = true;
};

}  // namespace tilewright::rendezvous
