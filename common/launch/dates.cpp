#include "common/launch/dates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "common/base/printable.h"

namespace tilewright::launch {
namespace {

constexpr std::string_view kOpening = "$(";
// Of `date` alone in the C locale.
constexpr std::string_view kDefaultFormat = "%a %b %e %H:%M:%S %Z %Y";
// Conversions of date(1). Not %N: the time of a job has whole seconds.
constexpr std::string_view kLetters = "aAbBcCdDeFgGhHIjklmMnpPqrRsSTtuUVwWxXyYzZ%";
constexpr std::string_view kFlags = "-_0^#";
constexpr std::string_view kUnflagged = "nt%qz";  // conversions without flags here
constexpr std::string_view kBlankLetters = "ceklrnt";
constexpr std::string_view kSplitting = " *?[";
constexpr std::size_t kMostFormatBytes = 256;

constexpr std::array<std::string_view, 3> kUtcOptions = {"-u", "--utc", "--universal"};

Error usage_error(std::string_view call, const std::string& found) {
  return {ExitCode::kUsage,
          fmt::format("{}: found {}, expected $(date), $(date +FORMAT) or $(date -u +FORMAT)",
                      excerpt(call), found)};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.starts_with(word) &&
         (text.size() == word.size() || text[word.size()] == ' ' || text[word.size()] == '\t');
}

std::string_view unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.front() == text.back();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// One conversion of a format, from its '%'.
struct Conversion {
  std::string text;  // "%-d"
  char letter = 0;
};

// Calls `literal` for the text between conversions and `conversion` for these. Returns what is
// wrong with the format; empty if nothing is.
template <typename Literal, typename Convert>
std::string for_each_conversion(std::string_view format, Literal literal, Convert convert) {
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      literal(format[i]);
      continue;
    }
    Conversion conversion{"%", 0};
    while (++i < format.size() && kFlags.find(format[i]) != std::string_view::npos) {
      conversion.text += format[i];
    }
    if (i == format.size()) return "\"%\" at its end";
    conversion.letter = format[i];
    conversion.text += conversion.letter;
    const bool flagged = conversion.text.size() > 2;
    if (kLetters.find(conversion.letter) == std::string_view::npos ||
        conversion.text.size() > 2 + kFlags.size() ||
        (flagged && kUnflagged.find(conversion.letter) != std::string_view::npos)) {
      return fmt::format("the conversion {}", quoted_excerpt(conversion.text));
    }
    convert(conversion);
  }
  return "";
}

}  // namespace

Result<DateCall> DateCall::parse(std::string_view text) {
  const std::string_view whole = text;
  text = trimmed(text);
  if (!starts_with_word(text, "date")) return usage_error(whole, "no date");
  text = trimmed(text.substr(4));
  std::vector<std::string> words;
  for (const std::string_view option : kUtcOptions) {
    if (!words.empty() || !starts_with_word(text, option)) continue;
    words.emplace_back(option);
    text = trimmed(text.substr(option.size()));
  }
  text = unquoted(text);
  if (text.starts_with('+')) {
    words.push_back(fmt::format("+{}", unquoted(text.substr(1))));
  } else if (!text.empty()) {
    words.emplace_back(text);
  }
  return from_words(words);
}

Result<DateCall> DateCall::from_words(std::span<const std::string> words) {
  const std::string whole =
      fmt::format("date{}{}", words.empty() ? "" : " ", fmt::join(words, " "));
  DateCall call;
  call.format = kDefaultFormat;
  if (!words.empty() && std::ranges::find(kUtcOptions, words.front()) != kUtcOptions.end()) {
    call.utc = true;
    words = words.subspan(1);
  }
  if (words.empty()) return call;
  if (!words.front().starts_with('+') || words.size() > 1) {
    return usage_error(whole, quoted_excerpt(fmt::format("{}", fmt::join(words, " "))));
  }
  call.format = words.front().substr(1);
  if (call.format.size() > kMostFormatBytes) return usage_error(whole, "a format that is too long");
  for (const char c : call.format) {
    if (std::string_view("()$`\"'\\").find(c) != std::string_view::npos) {
      return usage_error(whole, fmt::format("{} in the format", c));
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return usage_error(whole, "a control character in the format");
    }
  }
  const std::string wrong = for_each_conversion(
      call.format, [](char) {}, [](const Conversion&) {});
  if (!wrong.empty()) return usage_error(whole, wrong);
  return call;
}

std::string DateCall::text() const {
  const char* quote = format.find(' ') == std::string::npos ? "" : "\"";
  return fmt::format("$(date{} {}+{}{})", utc ? " -u" : "", quote, format, quote);
}

bool DateCall::needs_quotes() const {
  bool needs = false;
  for_each_conversion(
      format, [&](char c) { needs = needs || kSplitting.find(c) != std::string_view::npos; },
      [&](const Conversion& conversion) {
        needs = needs || conversion.text.find('_') != std::string::npos ||
                kBlankLetters.find(conversion.letter) != std::string_view::npos;
      });
  return needs;
}

std::string DateCall::print(std::int64_t unix_seconds) const {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm fields{};
  if (utc) {
    gmtime_r(&time, &fields);
    fields.tm_zone = "UTC";  // as `date -u`; gmtime() calls it GMT
  } else {
    localtime_r(&time, &fields);
  }
  std::string text;
  for_each_conversion(
      format, [&](char c) { text += c; },
      [&](const Conversion& conversion) {
        if (conversion.letter == 'q') {
          text += fmt::format("{}", fields.tm_mon / 3 + 1);
        } else if (conversion.letter == 's') {
          text += fmt::format("{}", unix_seconds);  // strftime() takes the fields for local time
        } else {
          std::array<char, 256> buffer{};
          const std::size_t size =
              std::strftime(buffer.data(), buffer.size(), conversion.text.c_str(), &fields);
          text.append(buffer.data(), size);
        }
      });
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

namespace {

bool calls_date(std::string_view inside) {
  inside = trimmed(inside);
  return starts_with_word(inside, "date") || inside.starts_with("date)");
}

}  // namespace

bool holds_date(std::string_view text) {
  for (std::size_t at = text.find(kOpening); at != std::string_view::npos;
       at = text.find(kOpening, at + 1)) {
    if (calls_date(text.substr(at + kOpening.size()))) return true;
  }
  return false;
}

Result<std::string> expand_dates(std::string_view text, std::int64_t unix_seconds, bool utc) {
  std::string expanded;
  for (std::size_t at = text.find(kOpening); at != std::string_view::npos;
       at = text.find(kOpening)) {
    expanded += text.substr(0, at);
    text.remove_prefix(at + kOpening.size());
    if (!calls_date(text)) {
      expanded += kOpening;
      continue;
    }
    const std::size_t end = text.find(')');
    if (end == std::string_view::npos) return usage_error(text, "no \")\"");
    auto call = DateCall::parse(text.substr(0, end));
    if (!call.ok()) return call.error();
    call->utc = call->utc || utc;
    expanded += call->print(unix_seconds);
    text.remove_prefix(end + 1);
  }
  return expanded += text;
}

}  // namespace tilewright::launch
