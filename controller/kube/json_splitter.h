// Cuts a stream of JSON objects into single ones, whatever pieces it comes in.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::kube {

// A watch is one JSON object after another with white space between them. Only brackets, strings
// and escapes are looked at; whether an object is right JSON its parser says.
class JsonSplitter {
 public:
  // An object of more than max_bytes is refused.
  explicit JsonSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  enum class Fault {
    kTooLong,
    kNotAnObject,  // something other than '{' or white space between objects
  };

  void feed(std::string_view bytes) { pending_.append(bytes); }
  // The next whole object, or nothing until more is fed (or fault() says why never).
  std::optional<std::string> next();
  std::optional<Fault> fault() const { return fault_; }
  // Whether the stream may end here.
  bool between_objects() const { return pending_.find_first_not_of(kBlank) == std::string::npos; }

 private:
  static constexpr std::string_view kBlank = " \t\r\n";

  const std::size_t max_bytes_;
  std::string pending_;      // from the current object's first byte on, once next() was called
  std::size_t scanned_ = 0;  // bytes of pending_ that the fields below stand for
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  std::optional<Fault> fault_;
};

}  // namespace tilewright::kube
