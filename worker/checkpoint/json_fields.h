// Reads the fields of a JSON object in a file. Errors name the file, the field, the found value and
// the expected value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::checkpoint {

// Whether a file that is named in another file is in the same directory: a name with a directory
// could name any file of the machine.
bool is_file_name(std::string_view name);

class JsonFields {
 public:
  static constexpr std::uint64_t kMaxFileBytes = std::uint64_t{16} << 20;

  // Reads a file of at most `max_bytes` that contains one object. Throws Failure with `code`, or
  // with `transient` as read_file() does.
  JsonFields(std::filesystem::path path, ExitCode code, std::uint64_t max_bytes = kMaxFileBytes,
             std::optional<ExitCode> transient = {});
  // The object in field `name`.
  JsonFields object(const std::string& name) const;

  // A field that is missing or null has the value `fallback`; without a fallback it is an error.
  std::int64_t integer(const std::string& name, std::int64_t min, std::int64_t max,
                       std::optional<std::int64_t> fallback = {}) const;
  double number(const std::string& name, double min, double max,
                std::optional<double> fallback = {}) const;
  std::string string(const std::string& name, std::optional<std::string> fallback = {}) const;
  bool boolean(const std::string& name, bool fallback) const;
  // A string, or the text of a number or boolean as Python prints it: "0", "1.5", "True".
  std::string text(const std::string& name) const;

  bool has(const std::string& name) const;  // present and not null
  const nlohmann::json& json() const { return json_; }
  // "FILE: FIELD is FOUND, expected EXPECTED" or "FILE: FIELD is missing; expected EXPECTED".
  [[noreturn]] void fail(const std::string& name, const std::string& expected) const;

 private:
  JsonFields(std::filesystem::path path, ExitCode code, std::string prefix, nlohmann::json json);

  std::filesystem::path path_;
  ExitCode code_;
  std::string prefix_;  // "outer." inside a nested object
  nlohmann::json json_;
};

}  // namespace tilewright::checkpoint
