// A JSON object from a file, read field by field; whatever does not fit is a sentence that names
// the file and the field, what was found and what was expected.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace tilewright::checkpoint {

class JsonFields {
 public:
  // Reads a file of at most 16 MiB that holds one object. Failures carry `code`.
  JsonFields(std::filesystem::path path, ExitCode code);
  // The object in field `name`.
  JsonFields object(const std::string& name) const;

  // A field that is absent or null takes the fallback; without a fallback it is an error.
  std::int64_t whole_number(const std::string& name, std::int64_t least, std::int64_t most,
                            std::optional<std::int64_t> fallback = {}) const;
  double number(const std::string& name, double least, double most,
                std::optional<double> fallback = {}) const;
  std::string text(const std::string& name, std::optional<std::string> fallback = {}) const;
  bool truth(const std::string& name, bool fallback) const;

  bool has(const std::string& name) const;  // present and not null
  const nlohmann::json& json() const { return json_; }
  // "FILE: FIELD is FOUND, expected EXPECTED"
  [[noreturn]] void fail(const std::string& name, const std::string& expected) const;

 private:
  JsonFields(std::filesystem::path path, ExitCode code, std::string prefix, nlohmann::json json);

  std::filesystem::path path_;
  ExitCode code_;
  std::string prefix_;  // "outer." inside a nested object
  nlohmann::json json_;
};

}  // namespace tilewright::checkpoint
