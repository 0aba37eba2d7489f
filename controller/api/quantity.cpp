#include "controller/api/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "controller/api/characters.h"

namespace tilewright::api {
namespace {

// A suffix multiplies the number by numerator / denominator.
struct Suffix {
  std::string_view text;
  std::int64_t numerator;
  std::int64_t denominator;
};

constexpr std::array kSuffixes = {
    Suffix{"", 1, 1},
    Suffix{"n", 1, 1'000'000'000},
    Suffix{"u", 1, 1'000'000},
    Suffix{"m", 1, 1'000},
    Suffix{"k", 1'000, 1},
    Suffix{"M", 1'000'000, 1},
    Suffix{"G", 1'000'000'000, 1},
    Suffix{"T", 1'000'000'000'000, 1},
    Suffix{"P", 1'000'000'000'000'000, 1},
    Suffix{"Ki", std::int64_t{1} << 10, 1},
    Suffix{"Mi", std::int64_t{1} << 20, 1},
    Suffix{"Gi", std::int64_t{1} << 30, 1},
    Suffix{"Ti", std::int64_t{1} << 40, 1},
    Suffix{"Pi", std::int64_t{1} << 50, 1},
};

}  // namespace

std::string quantity_hint(std::string_view text) {
  if (text.starts_with('-')) return parse_quantity(text.substr(1)) ? ", above zero" : "";
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end);
  std::string_view suffix = text.substr(end);
  if (number.empty() || number == "." || std::ranges::count(number, '.') > 1) return "";
  const bool known =
      std::ranges::any_of(kSuffixes, [&](const Suffix& one) { return one.text == suffix; });
  // Exabytes exceed 64 bits of thousandths.
  if (known || suffix == "E" || suffix == "Ei") return ", at most 9P";
  if (suffix.ends_with('B') || suffix.ends_with('b')) suffix.remove_suffix(1);
  if (suffix.empty() || suffix.size() > 2) return "";
  // Only "k", 1000, is a small letter.
  const char letter = suffix[0] == 'm' ? 'M'
                      : suffix[0] >= 'a' && suffix[0] <= 'z'
                          ? static_cast<char>(suffix[0] - 'a' + 'A')
                          : suffix[0];
  const std::string binary = fmt::format("{}{}i", number, letter);
  const std::string decimal = fmt::format("{}{}", number, letter == 'K' ? 'k' : letter);
  if (!parse_quantity(binary)) return "";
  if (suffix.size() == 2) return suffix[1] == 'i' ? fmt::format("; did you mean {}?", binary) : "";
  return fmt::format("; did you mean {} or {}?", decimal, binary);
}

std::optional<Quantity> parse_quantity(std::string_view text) {
  // 18 digits fit in 64 bits; the products below need 128 bits.
  constexpr std::size_t kMaxDigits = 18;
  __extension__ using Wide = unsigned __int128;
  std::string_view rest = text;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  Wide mantissa = 0;
  Wide denominator = 1;
  std::size_t digits = 0;
  bool point = false;
  for (; !rest.empty() && (is_digit(rest.front()) || rest.front() == '.'); rest.remove_prefix(1)) {
    if (rest.front() == '.') {
      if (std::exchange(point, true)) return std::nullopt;
      continue;
    }
    mantissa = mantissa * 10 + static_cast<unsigned>(rest.front() - '0');
    if (point) denominator *= 10;
    if (++digits > kMaxDigits) return std::nullopt;
  }
  if (digits == 0) return std::nullopt;

  Wide numerator = 1;
  if (rest.size() > 1 && (rest.front() == 'e' || rest.front() == 'E')) {  // a decimal exponent
    rest.remove_prefix(1);
    const bool negative = rest.starts_with('-');
    if (negative || rest.starts_with('+')) rest.remove_prefix(1);
    int exponent = 0;
    if (rest.empty()) return std::nullopt;
    for (; !rest.empty(); rest.remove_prefix(1)) {
      if (!is_digit(rest.front())) return std::nullopt;
      exponent = exponent * 10 + (rest.front() - '0');
      if (exponent > 15) return std::nullopt;
    }
    for (int i = 0; i < exponent; ++i) (negative ? denominator : numerator) *= 10;
  } else {
    const Suffix* found = nullptr;
    for (const Suffix& suffix : kSuffixes) {
      if (suffix.text == rest) found = &suffix;
    }
    if (found == nullptr) return std::nullopt;
    numerator = static_cast<Wide>(found->numerator);
    denominator *= static_cast<Wide>(found->denominator);
  }
  // mantissa < 2^60, numerator < 2^51, 1000 < 2^10: below 2^121. denominator < 2^90.
  const Wide thousandths = (mantissa * numerator * 1000 + denominator - 1) / denominator;
  if (thousandths > static_cast<Wide>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return Quantity{std::string(text), static_cast<std::int64_t>(thousandths)};
}

}  // namespace tilewright::api
