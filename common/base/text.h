// Small things about text and bytes that both programs need.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tilewright {

// Two lower-case hexadecimal digits a byte.
std::string to_hex(std::span<const unsigned char> bytes);

// How many bytes of UTF-8 text may stay so that there are at most `most`, and no character is cut.
std::size_t whole_characters(std::string_view text, std::size_t most);

// What stands between the first `before` in `text` and the next `after`; nothing where they do not.
std::optional<std::string> text_between(std::string_view text, std::string_view before,
                                        std::string_view after);

// The value of an environment variable; empty where it is not set.
std::string environment_variable(const char* name);

}  // namespace tilewright
