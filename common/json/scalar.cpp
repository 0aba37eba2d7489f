#include "common/json/scalar.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace tilewright {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

template <typename Number>
std::optional<Number> parse_digits(std::string_view digits, Number& number, int base) {
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// Accepts decimal, 0x..., 0b..., 0o..., and 0... for octal as in YAML 1.1.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  int base = 10;
  if (text.size() > 1 && text.front() == '0') {
    const char mark = text[1];
    base = mark == 'x' ? 16 : mark == 'b' ? 2 : 8;
    text.remove_prefix(mark == 'x' || mark == 'b' || mark == 'o' ? 2 : 1);
    if (text.empty() || text.front() == '-' || text.front() == '+') return std::nullopt;
  }
  std::int64_t number = 0;
  if (!parse_digits(text, number, base)) return std::nullopt;
  return negative ? -number : number;
}

std::optional<double> parse_decimal(std::string_view text) {
  // from_chars also accepts "inf", "nan" and hexadecimal digits, which are strings here.
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) return std::nullopt;
  }
  if (text.find_first_of("0123456789") == std::string_view::npos) {
    return std::nullopt;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

nlohmann::json resolve_plain_scalar(std::string_view text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
    return false;
  }
  if (const auto number = parse_integer(text)) return *number;
  if (const auto number = parse_decimal(text)) return *number;
  return std::string(text);
}

}  // namespace tilewright
