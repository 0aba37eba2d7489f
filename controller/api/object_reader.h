// Reads the fields of a JSON object by name and type, and reports fields that were not read.
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

#include "common/json/document.h"
#include "controller/api/findings.h"
#include "controller/api/metadata.h"
#include "controller/api/quantity.h"

namespace tilewright::api {

// Shared by the readers of one manifest.
struct DecodeContext {
  Positions& positions;
  std::vector<FieldError>& errors;
  FieldValidation validation = FieldValidation::kStrict;
  bool pytorchjob = false;  // otherwise the manifest of a TrainJob

  void error(const std::string& path, std::string message) const;
};

// For messages: the string "fast", the number 1.5, a list. Long strings are truncated.
std::string describe_found(const nlohmann::json& value);

// A field that is absent or null leaves the target unchanged. A wrong type is an error:
// found the string "two", expected an integer.
class ObjectReader {
 public:
  // `value` must outlive the reader. Reports an error if `value` is not an object.
  ObjectReader(const DecodeContext& context, const nlohmann::json& value, std::string path);

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const { return member_path(path_, name); }
  const DecodeContext& context() const { return context_; }

  // nullptr if absent or null. Marks the field as known.
  const nlohmann::json* take(std::string_view name);

  // Like take(), without marking the field as known.
  const nlohmann::json* peek(std::string_view name) const;

  void string(std::string_view name, std::string& target);
  void string(std::string_view name, std::optional<std::string>& target);
  void boolean(std::string_view name, std::optional<bool>& target);
  void integer(std::string_view name, std::optional<std::int64_t>& target,
               std::string_view expected = "an integer");
  void integer(std::string_view name, std::int64_t& target);
  void number(std::string_view name, double& target);
  void number(std::string_view name, std::optional<double>& target);
  void timestamp(std::string_view name, Timestamp& target);
  void quantity(std::string_view name, std::optional<Quantity>& target);
  void strings(std::string_view name, std::vector<std::string>& target);
  void string_map(std::string_view name, std::map<std::string, std::string>& target);
  // Copies an object or a list without a check of its content.
  void raw_object(std::string_view name, nlohmann::json& target);
  void raw_list(std::string_view name, nlohmann::json& target);

  // The index of the value in `names`; -1 if absent, or after reporting an error.
  int choice(std::string_view name, std::span<const std::string_view> names);

  // Calls `decode` with a reader of the field's value, then reports fields that it did not read.
  void object(std::string_view name, const std::function<void(ObjectReader&)>& decode);
  void each_object(std::string_view name, const std::function<void(ObjectReader&)>& decode);

  // The names of fields that are not known yet.
  std::vector<std::string> remaining() const;
  bool is_known(std::string_view name) const { return known_.contains(name); }
  // Accepts a field without reading it.
  void ignore(std::string_view name) { known_.insert(std::string(name)); }
  // Reports unknown fields. The message suggests the nearest known name, or the path at which a
  // field of that name exists.
  void finish();

  void type_error(std::string_view name, const nlohmann::json& found,
                  std::string_view expected) const;

 private:
  template <typename Target>
  void take_string(std::string_view name, Target& target);

  const DecodeContext& context_;
  const nlohmann::json* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tilewright::api
