// A receiver of the events of nlohmann::json::sax_parse() that ignores them all, for classes that
// need some of them.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewright {

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  // Ends the parsing without an exception.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
};

// Limits the parser's memory, and the recursion of functions such as dump().
inline constexpr std::size_t kMaxJsonDepth = 64;

// Ends the parsing of text that nests deeper. A callback of parse() would take quadratic time for a
// list of objects, such as a log history of 100,000 entries.
class JsonDepthLimit : public JsonEvents {
 public:
  bool exceeded() const { return depth_ > kMaxJsonDepth; }

  bool start_object(std::size_t) override { return ++depth_ <= kMaxJsonDepth; }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxJsonDepth; }
  bool end_array() override { return close(); }

 private:
  bool close() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
};

inline bool nests_too_deep(std::string_view json) {
  JsonDepthLimit limit;
  nlohmann::json::sax_parse(json, &limit);
  return limit.exceeded();
}

}  // namespace tilewright
