#include "worker/text/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace tilewright::text {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// The tables below list the code points for which Hugging Face's tokenizers differ from utf8proc.
// An entry may also include code points for which both agree, so that one entry covers several
// differences. tests/golden/text compares every code point.

// Format characters added after Unicode 8: kept.
constexpr CodePointRange kNewFormat[] = {
    {0x890, 0x891}, {0x8E2, 0x8E2}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}};

// Punctuation added after Unicode 8: part of words.
constexpr CodePointRange kNewPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0xA76},     {0xC77, 0xC84},     {0x1B7D, 0x1B7E},
    {0x2E43, 0x2E5D},   {0x10EAD, 0x10F89}, {0x1144B, 0x1145D}, {0x11660, 0x116B9},
    {0x1183B, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16FE2}, {0x1E95E, 0x1E95F}};

// Non-spacing marks added after Unicode 8: not treated as accents.
constexpr CodePointRange kNewMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x8E1},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
    {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},
    {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},   {0x10D24, 0x10F85}, {0x11070, 0x11074},
    {0x110C2, 0x110C2}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x11241},
    {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x1182F, 0x13455}, {0x16F4F, 0x16F4F},
    {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF}, {0x1E944, 0x1E94A}};

// Marks added after Unicode 9: combining class 0, so they are not reordered.
constexpr CodePointRange kNewClasses[] = {
    {0x7FD, 0x7FD},     {0x898, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x11A99}, {0x11D42, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E4EF}};

// Letters that got a lower case in Unicode 16 or 17, which Debian 12's utf8proc lacks.
struct LowerCase {
  char32_t first;
  char32_t last;
  int step;  // lower case of the k-th letter of the range is `first` + `offset` + k
  int offset;
};
constexpr LowerCase kNewLowerCase[] = {
    {0x1C89, 0x1C89, 1, 1},      {0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7CE, 2, 1},      {0xA7D2, 0xA7D4, 2, 1},
    {0xA7DA, 0xA7DA, 1, 1},      {0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 1, 0x20}, {0x16EA0, 0x16EB8, 1, 0x1B}};

constexpr CodePointRange kCjk[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                   {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                   {0x2F800, 0x2FA1F}};

template <std::size_t N>
bool within(const CodePointRange (&ranges)[N], char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t x, const CodePointRange& r) { return x < r.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  if (c == 0x85) return true;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_control(char32_t c) {
  if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CO ||
         (kind == UTF8PROC_CATEGORY_CF && !within(kNewFormat, c));
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
           (c > 'z' && c < 0x7F);
  }
  const utf8proc_category_t kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO) {
    return !within(kNewPunctuation, c);
  }
  return c == 0x166D || c == 0x111C9;  // punctuation in Unicode 8, later a symbol and a mark
}

bool is_nonspacing_mark(char32_t c) {
  if (c < 0x300) return false;
  if (category(c) == UTF8PROC_CATEGORY_MN) return !within(kNewMarks, c);
  return c == 0x1734;  // non-spacing in Unicode 8, later a spacing mark
}

bool is_cjk_ideograph(char32_t c) { return c >= 0x3400 && within(kCjk, c); }

bool is_word_character(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // joiners, and circled and squared letters, which are alphabetic in Unicode
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  for (const LowerCase& entry : kNewLowerCase) {
    if (c < entry.first) break;
    if (c <= entry.last && (c - entry.first) % static_cast<char32_t>(entry.step) == 0) {
      return static_cast<char32_t>(static_cast<int>(c) + entry.offset);
    }
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const int found = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return found != 0 && within(kNewClasses, c) ? 0 : found;
}

std::size_t decompose(char32_t c, char32_t (&out)[kMaxDecomposition]) {
  out[0] = c;
  if (c < 0xC0 || c == 0x11938) return 1;  // U+11938 decomposes since Unicode 13
  utf8proc_int32_t parts[kMaxDecomposition];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts, kMaxDecomposition, UTF8PROC_DECOMPOSE, &boundary);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(kMaxDecomposition)) return 1;
  for (utf8proc_ssize_t i = 0; i < count; ++i) out[i] = static_cast<char32_t>(parts[i]);
  return static_cast<std::size_t>(count);
}

}  // namespace tilewright::text
