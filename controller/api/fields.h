// The members of a JSON object, taken one by one with their types; what is left over is unknown.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/document.h"
#include "controller/api/findings.h"
#include "controller/api/metadata.h"
#include "controller/api/quantity.h"

namespace tilewright::api {

// What all Fields of one manifest share.
struct DecodeContext {
  const Positions& positions;
  std::vector<FieldError>& errors;
  bool strict = true;  // unknown fields are errors

  void error(const std::string& path, std::string message) const;
};

// "the text fast", "the number 1.5", "a list": for messages. Long texts are cut.
std::string describe_found(const nlohmann::json& value);

// A member that is absent or null leaves the target as it is. A wrong type is an error:
// "found the text two, expected a whole number".
class Fields {
 public:
  // `value` must outlive the object. If it is no object, that is an error and nothing is taken.
  Fields(const DecodeContext& context, const nlohmann::json& value, std::string path);

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const { return member_path(path_, name); }
  const DecodeContext& context() const { return context_; }

  // nullptr when absent or null; the field is known from here on.
  const nlohmann::json* take(std::string_view name);

  // The same without marking the field as known.
  const nlohmann::json* peek(std::string_view name) const;

  void text(std::string_view name, std::string& target);
  void text(std::string_view name, std::optional<std::string>& target);
  void boolean(std::string_view name, std::optional<bool>& target);
  void integer(std::string_view name, std::optional<std::int64_t>& target);
  void integer(std::string_view name, std::int64_t& target);
  void number(std::string_view name, double& target);
  void number(std::string_view name, std::optional<double>& target);
  void timestamp(std::string_view name, Timestamp& target);
  void quantity(std::string_view name, std::optional<Quantity>& target);
  void texts(std::string_view name, std::vector<std::string>& target);
  void text_map(std::string_view name, std::map<std::string, std::string>& target);
  // Kept as they came, once the kind is right.
  void raw_object(std::string_view name, nlohmann::json& target);
  void raw_list(std::string_view name, nlohmann::json& target);

  // One of the values of an enum that to_string knows.
  template <typename Enum>
  void choice(std::string_view name, std::initializer_list<Enum> values,
              std::optional<Enum>& target) {
    std::vector<std::string_view> words;
    for (const Enum value : values) words.push_back(to_string(value));
    const int index = choose(name, words);
    if (index >= 0) target = values.begin()[index];
  }

  // Calls back with the member's fields, and reports what it left over.
  void object(std::string_view name, const std::function<void(Fields&)>& decode);
  void each_object(std::string_view name, const std::function<void(Fields&)>& decode);

  // Fields left over, after which they are known.
  std::vector<std::string> rest() const;
  // Accepts a field without looking at it.
  void ignore(std::string_view name) { known_.insert(std::string(name)); }
  // Reports the fields left over, with the nearest known name, or the place where that name is
  // known.
  void finish();

  void wrong(std::string_view name, const nlohmann::json& found, std::string_view expected) const;

 private:
  int choose(std::string_view name, std::span<const std::string_view> words);
  template <typename Target>
  void take_text(std::string_view name, Target& target);

  const DecodeContext& context_;
  const nlohmann::json* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tilewright::api
