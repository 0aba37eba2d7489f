#include "worker/text/utf8.h"

#include <cstring>

namespace tilewright::text {
namespace {

constexpr Decoded kIllFormed = {0xFFFD, 0};

// The sequence at `at`; size 0 if it is ill-formed. After E0, ED, F0 and F4 the second byte has a
// smaller range.
Decoded decode_strictly(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const std::size_t left = text.size() - at;
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {static_cast<char32_t>(lead), 1};
  const std::uint32_t size = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (size == 0 || left < size) return kIllFormed;
  const std::uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return kIllFormed;
  std::uint32_t code_point = lead & (0x7FU >> size);
  for (std::uint32_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return kIllFormed;
    code_point = code_point << 6 | (byte(i) & 0x3FU);
  }
  return {static_cast<char32_t>(code_point), size};
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t block = 0;
    if (at + sizeof block <= text.size()) {
      std::memcpy(&block, text.data() + at, sizeof block);
      if ((block & 0x8080808080808080U) == 0) {
        at += sizeof block;
        continue;
      }
    }
    const Decoded next = decode_strictly(text, at);
    if (next.size == 0) return at;
    at += next.size;
  }
  return std::nullopt;
}

Decoded decode_utf8(std::string_view text, std::size_t at) {
  const Decoded next = decode_strictly(text, at);
  return next.size == 0 ? Decoded{0xFFFD, 1} : next;
}

Decoded decode_utf8_before(std::string_view text, std::size_t end) {
  for (std::uint32_t size = 1; size <= 4 && size <= end; ++size) {
    const Decoded last = decode_strictly(text.substr(0, end), end - size);
    if (last.size == size) return last;
  }
  return {0xFFFD, 1};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](unsigned shift) {
    out.push_back(static_cast<char>(0x80U | (code_point >> shift & 0x3FU)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0U | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0U | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace tilewright::text
