// TW_CHECK(condition, format, ...): detects programming errors. On failure, prints file, line,
// condition and message to standard error and aborts. Expected failures are Results instead.
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
