// Helpers for strings, bytes and environment variables.
#pragma once

#include <charconv>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace tilewright {

// Two lower-case hexadecimal digits per byte.
std::string to_hex(std::span<const unsigned char> bytes);

// The length of the longest prefix of UTF-8 text that has at most `max_bytes` bytes and splits no
// character.
std::size_t utf8_prefix_length(std::string_view text, std::size_t max_bytes);

// The length of the valid UTF-8 sequence at the start of `text`, which is not empty; 0 if there is
// none.
std::size_t utf8_sequence_length(std::string_view text);

bool is_utf8(std::string_view text);

// The whole text as a decimal number from `least` to `most` in the form of std::from_chars (without
// blanks or a plus sign); nullopt: it is none. Never NaN, nor, without bounds, infinite.
template <typename Number>
std::optional<Number> parse_number(std::string_view text,
                                   Number least = std::numeric_limits<Number>::lowest(),
                                   Number most = std::numeric_limits<Number>::max()) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !(least <= number && number <= most)) {
    return std::nullopt;
  }
  return number;
}

// ASCII letters in lower case.
std::string lower_case(std::string_view text);

// The text between the first `before` and the next `after`; nullopt if either is missing.
std::optional<std::string> substring_between(std::string_view text, std::string_view before,
                                             std::string_view after);

// Whether two texts differ at most in the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// "1 core", "2 cores", "2 processes": `n` and the noun, whose plural ends with s, or with es after
// s.
std::string counted(std::size_t n, std::string_view noun);

// The value of an environment variable; empty if it is not set.
std::string environment_variable(const char* name);

// environment_variable(), or other variables in tests.
using GetVariable = std::function<std::string(const char* name)>;

}  // namespace tilewright
