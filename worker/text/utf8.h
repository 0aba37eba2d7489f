// UTF-8: the check that every text must pass before it is tokenised, decoding and encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::text {

// The offset of the first byte that begins no well-formed sequence (overlong forms, surrogates and
// code points above U+10FFFF are ill-formed: Unicode standard, table 3-7); nothing if all is well.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

struct Decoded {
  char32_t code_point;
  std::uint32_t size;  // bytes taken, 1 to 4
};

// The code point that begins at `at`. An ill-formed sequence gives U+FFFD and takes one byte, so
// that no text can make a reader leave its bounds.
Decoded decode_utf8(std::string_view text, std::size_t at);

// The code point that ends just before `end` (end > 0), with the bytes it takes.
Decoded decode_utf8_before(std::string_view text, std::size_t end);

void append_utf8(char32_t code_point, std::string& out);

}  // namespace tilewright::text
