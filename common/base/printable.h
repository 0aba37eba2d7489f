// Text from files, peers and users in messages for terminals and logs.
#pragma once

#include <string>
#include <string_view>

namespace tilewright {

enum class Lines { kOne, kSeveral };

// `text` with control characters as \n, \t or \x1b, so that it can neither look like another line
// nor change the state of a terminal. Escapes C0, DEL and the UTF-8 form of C1 (U+0080 to U+009F).
// kSeveral keeps line feeds.
std::string printable(std::string_view text, Lines lines = Lines::kOne);

}  // namespace tilewright
