#include "common/json/scalar.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace tilewright {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

// Decimal, 0x..., 0b..., 0o..., and 0... for octal as in YAML 1.1. Without a sign, up to 64 bits;
// what does not fit into an int64 becomes a double.
std::optional<nlohmann::json> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  const bool has_sign = negative || text.starts_with('+');
  if (has_sign) text.remove_prefix(1);
  int base = 10;
  if (text.size() > 1 && text.front() == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);  // in lower case
    base = mark == 'x' ? 16 : mark == 'b' ? 2 : 8;
    text.remove_prefix(mark == 'x' || mark == 'b' || mark == 'o' ? 2 : 1);
  }
  std::uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (magnitude <= kMax + (negative ? 1 : 0)) {
    return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
  }
  return has_sign ? std::nullopt : std::optional<nlohmann::json>(static_cast<double>(magnitude));
}

// kubectl writes the value as JSON, which loses the point of 128.0 and the exponent of 1e3, so an
// integral value that fits into an int64 is an integer.
std::optional<nlohmann::json> parse_decimal(std::string_view text) {
  // from_chars also accepts "inf", "nan" and hexadecimal digits, which are strings here.
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) return std::nullopt;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return std::nullopt;
  }
  constexpr double kEnd = 0x1p63;
  if (number == std::trunc(number) && std::abs(number) < kEnd) {
    return static_cast<std::int64_t>(number);
  }
  return number;
}

// Both ignore underscores after the first character, which has to begin a number.
std::optional<nlohmann::json> parse_number(std::string_view text) {
  if (text.find_first_of("0123456789+-.") != 0) return std::nullopt;
  std::string digits(text);
  if (text.front() != '.') std::erase(digits, '_');
  if (auto number = parse_integer(digits)) return number;
  return parse_decimal(digits);
}

}  // namespace

nlohmann::json resolve_plain_scalar(std::string_view text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON"})) {
    return true;
  }
  if (is_one_of(text,
                {"false", "False", "FALSE", "no", "No", "NO", "n", "N", "off", "Off", "OFF"})) {
    return false;
  }
  if (auto number = parse_number(text)) return *std::move(number);
  return std::string(text);
}

}  // namespace tilewright
