// Splits a stream of concatenated JSON objects, received in arbitrary chunks, into single objects.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::kube {

// A watch response is a sequence of JSON objects separated by whitespace. The splitter tracks only
// brackets, strings and escapes; it does not validate the JSON.
class JsonSplitter {
 public:
  // An object larger than max_bytes is a fault.
  explicit JsonSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  enum class Fault {
    kTooLong,
    kNotAnObject,  // something other than '{' or whitespace between objects
  };

  void feed(std::string_view bytes) { pending_.append(bytes); }
  // The next complete object. std::nullopt: more input is needed, or fault() is set.
  std::optional<std::string> next();
  std::optional<Fault> fault() const { return fault_; }
  // True if the stream may end here.
  bool between_objects() const {
    return pending_.find_first_not_of(kWhitespace) == std::string::npos;
  }

 private:
  static constexpr std::string_view kWhitespace = " \t\r\n";

  const std::size_t max_bytes_;
  std::string pending_;      // starts at the current object once next() was called
  std::size_t scanned_ = 0;  // bytes of pending_ that the fields below cover
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  std::optional<Fault> fault_;
};

}  // namespace tilewright::kube
