// UTF-8: validation, decoding and encoding. Text is validated before it is tokenized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::text {

// The offset of the first byte that does not begin a well-formed sequence; nullopt for valid text.
// Overlong forms, surrogates and code points above U+10FFFF are ill-formed (Unicode standard, table
// 3-7).
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Whether a byte of valid text begins a code point; the others continue one.
constexpr bool begins_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }

struct Decoded {
  char32_t code_point;
  std::uint32_t size;  // bytes of the sequence, 1 to 4
};

// The code point that begins at `at`. An ill-formed sequence gives U+FFFD with size 1, so that
// reading stays within the text.
Decoded decode_utf8(std::string_view text, std::size_t at);

// The code point that ends before offset `end` (end > 0).
Decoded decode_utf8_before(std::string_view text, std::size_t end);

void append_utf8(char32_t code_point, std::string& out);

}  // namespace tilewright::text
