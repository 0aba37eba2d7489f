// Typed, bounded access to the fields of a JSON object from a socket. Keeps the first error; every
// later read still returns a value.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace tilewright::rendezvous {

class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("", "is not an object");
  }

  std::int64_t integer(const char* name, std::int64_t minimum, std::int64_t maximum) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return minimum;
    // An unsigned value above the signed range must not wrap around.
    const bool fits = field->is_number_integer() &&
                      (!field->is_number_unsigned() ||
                       field->get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    const std::int64_t value = fits ? field->get<std::int64_t>() : 0;
    if (fits && value >= minimum && value <= maximum) return value;
    fail(name, fmt::format("is not an integer from {} to {}", minimum, maximum));
    return minimum;
  }

  std::uint64_t unsigned64(const char* name) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return 0;
    if (field->is_number_unsigned()) return field->get<std::uint64_t>();
    fail(name, "is not an unsigned integer");
    return 0;
  }

  // null is NaN.
  double number(const char* name) {
    const nlohmann::json* field = find(name);
    if (field == nullptr || field->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (field->is_number()) return field->get<double>();
    fail(name, "is not a number");
    return 0;
  }

  std::string string(const char* name, std::size_t maximum) {
    const nlohmann::json* field = find(name);
    if (field == nullptr) return "";
    if (field->is_string() && field->get_ref<const std::string&>().size() <= maximum)
      return field->get<std::string>();
    fail(name, fmt::format("is not a string of at most {} bytes", maximum));
    return "";
  }

  // An array of 1 to `max_count` strings.
  std::vector<std::string> strings(const char* name, std::size_t max_count, std::size_t max_bytes) {
    std::vector<std::string> values;
    for (const nlohmann::json& value : array(name, max_count)) {
      if (value.is_string() && value.get_ref<const std::string&>().size() <= max_bytes) {
        values.push_back(value.get<std::string>());
      } else {
        fail(name,
             fmt::format("has an element that is not a string of at most {} bytes", max_bytes));
      }
    }
    if (values.empty()) fail(name, "has no elements");
    return values;
  }

  bool boolean(const char* name) {
    const nlohmann::json* field = find(name);
    if (field != nullptr && field->is_boolean()) return field->get<bool>();
    if (field != nullptr) fail(name, "is neither true nor false");
    return false;
  }

  bool has(const char* name) const { return object_.is_object() && object_.contains(name); }

  // An array of at most `maximum` elements, or an empty one.
  const nlohmann::json& array(const char* name, std::size_t maximum) {
    static const nlohmann::json kNone = nlohmann::json::array();
    const nlohmann::json* field = find(name);
    if (field == nullptr) return kNone;
    if (field->is_array() && field->size() <= maximum) return *field;
    fail(name, fmt::format("is not an array of at most {} elements", maximum));
    return kNone;
  }

  const nlohmann::json& object(const char* name, std::size_t maximum) {
    static const nlohmann::json kNone = nlohmann::json::object();
    const nlohmann::json* field = find(name);
    if (field == nullptr) return kNone;
    if (field->is_object() && field->size() <= maximum) return *field;
    fail(name, fmt::format("is not an object of at most {} fields", maximum));
    return kNone;
  }

  void fail(const std::string& name, const std::string& what) {
    if (!ok_) return;
    ok_ = false;
    message_ = name.empty() ? fmt::format("{} {}", where_, what)
                            : fmt::format("{}: {} {}", where_, name, what);
  }
  // Copies the error of a nested object.
  void take_error(const Fields& part) {
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
