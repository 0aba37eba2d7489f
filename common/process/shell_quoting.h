// Quotes the words of a command line for a POSIX shell.
#pragma once

#include <string>
#include <string_view>

namespace tilewright {

// In single quotes unless the word needs none.
std::string shell_quoted(std::string_view word);

}  // namespace tilewright
