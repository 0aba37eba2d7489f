// $(date +FORMAT) in the arguments of a training: "/tmp/pvc-mount/output_$(date +%Y%m%d_%H%M%S)".
// The time is a parameter, because all workers of a job use the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::launch {

// A call of date(1) without the parentheses: `date`, `date -u`, `date +FORMAT`, `date -u +FORMAT`.
struct DateCall {
  bool utc = false;
  std::string format;  // without "+"; that of `date` alone if none is given

  // `text`: "date -u +%Y%m%d"; one pair of quotes around +FORMAT or FORMAT is removed. Error:
  // kUsage, for an option or a format letter that is not supported, and for parentheses.
  static Result<DateCall> parse(std::string_view text);
  // The words after `date`, as a shell passes them. Error: as parse().
  static Result<DateCall> from_words(std::span<const std::string> words);
  // "$(date -u +%Y%m%d)", "$(date "+%H %M")": as parse() reads it.
  std::string text() const;
  // Whether a shell would split the output at blanks, or take it as a pattern, unless it is quoted.
  bool needs_quotes() const;
  // What date(1) prints at that time in the local time zone, without line feeds at the end.
  std::string print(std::int64_t unix_seconds) const;
};

// Whether the text holds a $(date ...).
bool holds_date(std::string_view text);
// Replaces each $(date ...) by what date(1) prints at that time, in UTC or the local time zone.
// Error: as DateCall::parse().
Result<std::string> expand_dates(std::string_view text, std::int64_t unix_seconds,
                                 bool utc = false);

}  // namespace tilewright::launch
