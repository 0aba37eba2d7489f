#include "worker/checkpoint/json_fields.h"

#include "common/base/files.h"
#include "common/base/json_events.h"
#include "common/base/printable.h"

namespace tilewright::checkpoint {
namespace {

// A field's value for a message.
std::string format_value(const nlohmann::json& value) {
  return excerpt(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

JsonFields::JsonFields(std::filesystem::path path, ExitCode code, std::uint64_t max_bytes,
                       std::optional<ExitCode> transient)
    : path_(std::move(path)), code_(code) {
  const std::string content = read_regular_file(path_, max_bytes, code, transient).or_throw();
  if (nests_too_deep(content)) {  // parse() throws the errors of syntax
    throw Failure(code, fmt::format("{}: the JSON nests deeper than {} levels", path_.string(),
                                    kMaxJsonDepth));
  }
  const auto fail_at = [&](std::size_t byte) {
    throw Failure(code, fmt::format("{}: is not valid JSON at byte {}", path_.string(), byte));
  };
  // The parser would end there.
  if (const std::size_t nul = content.find('\0'); nul != std::string::npos) fail_at(nul + 1);
  try {
    json_ = nlohmann::json::parse(content);
  } catch (const nlohmann::json::parse_error& error) {
    fail_at(error.byte);
  } catch (const nlohmann::json::exception&) {
    throw Failure(code, fmt::format("{}: found a number out of range", path_.string()));
  }
  if (!json_.is_object()) {
    throw Failure(code, fmt::format("{}: found {}, expected a JSON object", path_.string(),
                                    format_value(json_)));
  }
}

JsonFields::JsonFields(std::filesystem::path path, ExitCode code, std::string prefix,
                       nlohmann::json json)
    : path_(std::move(path)), code_(code), prefix_(std::move(prefix)), json_(std::move(json)) {}

bool JsonFields::has(const std::string& name) const {
  return json_.contains(name) && !json_[name].is_null();
}

JsonFields JsonFields::object(const std::string& name) const {
  if (!has(name) || !json_[name].is_object()) fail(name, "an object");
  return {path_, code_, prefix_ + name + ".", json_[name]};
}

std::int64_t JsonFields::integer(const std::string& name, std::int64_t min, std::int64_t max,
                                 std::optional<std::int64_t> fallback) const {
  if (fallback && !has(name)) return *fallback;
  const std::string expected = fmt::format("an integer from {} to {}", min, max);
  if (!has(name) || !json_[name].is_number_integer()) fail(name, expected);
  if (json_[name].is_number_unsigned() && json_[name].get<std::uint64_t>() > INT64_MAX) {
    fail(name, expected);
  }
  const auto value = json_[name].get<std::int64_t>();
  if (value < min || value > max) fail(name, expected);
  return value;
}

double JsonFields::number(const std::string& name, double min, double max,
                          std::optional<double> fallback) const {
  if (fallback && !has(name)) return *fallback;
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  if (!has(name) || !json_[name].is_number()) fail(name, expected);
  const auto value = json_[name].get<double>();
  if (!(value >= min && value <= max)) fail(name, expected);
  return value;
}

std::string JsonFields::string(const std::string& name, std::optional<std::string> fallback) const {
  if (fallback && !has(name)) return *fallback;
  if (!has(name) || !json_[name].is_string()) fail(name, "a string");
  return json_[name].get<std::string>();
}

bool JsonFields::boolean(const std::string& name, bool fallback) const {
  if (!has(name)) return fallback;
  if (!json_[name].is_boolean()) fail(name, "true or false");
  return json_[name].get<bool>();
}

std::string JsonFields::text(const std::string& name) const {
  if (!has(name) || json_[name].is_structured()) fail(name, "a string, a number or a boolean");
  const nlohmann::json& value = json_[name];
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void JsonFields::fail(const std::string& name, const std::string& expected) const {
  const auto found = json_.find(name);
  throw Failure(
      code_, fmt::format("{}: {}{} is {} expected {}", path_.string(), prefix_, name,
                         found == json_.end() ? "missing;" : format_value(*found) + ",", expected));
}

}  // namespace tilewright::checkpoint
