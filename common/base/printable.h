// Text from files, peers and users in messages for terminals, logs and the status of a job.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewright {

enum class Lines { kOne, kSeveral };

// `text` as valid UTF-8 with control characters as \n, \t or \x1b, so that it can neither look like
// another line nor change the state of a terminal. Escapes C0, DEL, the UTF-8 form of C1 (U+0080 to
// U+009F), and each byte that is not part of a valid UTF-8 sequence. kSeveral keeps line feeds.
std::string printable(std::string_view text, Lines lines = Lines::kOne);

// Bytes of foreign text that a message quotes. A Hub repository id (96 bytes) fits into the first.
inline constexpr std::size_t kValueExcerpt = 100;  // a name or a value
inline constexpr std::size_t kLineExcerpt = 200;   // a line, a command, a list or an HTTP body

// printable() of the first `max_bytes` bytes of `text`, or fewer in order to split no character,
// and "..." if that is not the whole text.
std::string excerpt(std::string_view text, std::size_t max_bytes = kValueExcerpt);

// excerpt() in double quotes. Quotes in `text` are not escaped.
std::string quoted_excerpt(std::string_view text, std::size_t max_bytes = kValueExcerpt);

}  // namespace tilewright
