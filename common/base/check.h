// TW_CHECK(condition, format, ...): a violated assumption of the program itself. Prints where, what
// and why to standard error and aborts. Expected failures are Results, never checks.
#pragma once

#include <fmt/format.h>

#include <string>

namespace tilewright::internal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& why);
}  // namespace tilewright::internal

#define TW_CHECK(condition, ...)                                           \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::tilewright::internal::check_failed(__FILE__, __LINE__, #condition, \
                                           ::fmt::format(__VA_ARGS__));    \
  } while (false)
