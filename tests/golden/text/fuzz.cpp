#include "tests/golden/text/fuzz.h"

#include <string_view>
#include <vector>

#include "worker/runtime/split_mix.h"
#include "worker/text/utf8.h"

namespace tilewright::testing {
namespace {

struct CodePointRange {
  char32_t first, last;
};
using Ranges = std::vector<CodePointRange>;

const std::vector<std::string_view> kWords = {
    "the",    "unaffable", "Tokenization", "HELLO",
    "don't",  "U.S.A.",    "3.14159",      "e-mail",
    "naïve",  "Ångström",  "İstanbul",     "STRASSE",
    "straße", "ΟΔΥΣΣΕΥΣ",  "Ǆungla",       "ﬁne",
    "x²",     "½",         "¿qué?",        "antidisestablishmentarianism",
    "a",      "I",         "##ing",        "re##set",
    "Ⅷ",      "№",         "“quoted”",     "日本語",
    "서울"};
const std::vector<std::string_view> kSpecials = {"[CLS]",  "[SEP]",    "[PAD]",      "[UNK]",
                                                 "[MASK]", "[cls]",    "[ MASK ]",   "[MASK",
                                                 "MASK]",  "[[MASK]]", "[UNK][SEP]", "[unused7]"};
const std::vector<std::string_view> kSpaces = {
    " ", " ", " ", " ", "", "", "", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "  "};
const std::vector<char32_t> kControls = {
    0x00,   0x0B,   0x0C,   0x7F,   0x85,  0xAD,  0x200B,  0x200D,  0x200E,  0x202E, 0x2060,
    0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x600, 0x890, 0x110BD, 0x110CD, 0xE0001, 0xE0061};
const Ranges kMarks = {{0x300, 0x36F},   {0x483, 0x487},    {0x591, 0x5C7},   {0x64B, 0x65F},
                       {0x93C, 0x94D},   {0xE31, 0xE4E},    {0x1AB0, 0x1ACE}, {0x1BAA, 0x1BAD},
                       {0x1DC0, 0x1DFF}, {0x20D0, 0x20F0},  {0x302A, 0x302F}, {0x3099, 0x309A},
                       {0xFE00, 0xFE2F}, {0x1D165, 0x1D172}};
// Segments of kind 9 to 14: CJK, emoji, right-to-left, letters, kana and hangul, new or private.
const std::vector<Ranges> kScripts = {
    {{0x3400, 0x4DBF},
     {0x4E00, 0x9FFF},
     {0xF900, 0xFAFF},
     {0x20000, 0x2A6DF},
     {0x2A700, 0x2B91F},
     {0x2F800, 0x2FA1F},
     {0x30000, 0x3134A}},
    {{0x1F300, 0x1F64F},
     {0x1F680, 0x1F6FF},
     {0x1F900, 0x1FAFF},
     {0x2600, 0x27BF},
     {0x1F1E6, 0x1F1FF}},
    {{0x5D0, 0x5F4},
     {0x600, 0x6FF},
     {0x750, 0x77F},
     {0x8A0, 0x8FF},
     {0xFB1D, 0xFDFF},
     {0x1E900, 0x1E95F}},
    {{0xA1, 0x24F},
     {0x370, 0x3FF},
     {0x400, 0x52F},
     {0x1E00, 0x1FFF},
     {0x2100, 0x218B},
     {0x10A0, 0x10FF},
     {0x13A0, 0x13FD},
     {0xA640, 0xA7FF}},
    {{0xAC00, 0xD7A3}, {0x1100, 0x11FF}, {0x3000, 0x30FF}, {0xFF00, 0xFFEF}},
    {{0x10D00, 0x11FFF},
     {0x1E000, 0x1E9FF},
     {0x2E00, 0x2E5D},
     {0x12F90, 0x13460},
     {0x16E40, 0x16FF1},
     {0x1CF00, 0x1CFC3},
     {0xE000, 0xF8FF},
     {0xF0000, 0xFFFFD},
     {0x100000, 0x10FFFD}}};

class Random {
 public:
  explicit Random(std::uint64_t seed) : numbers_(seed) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(numbers_.next() % n); }
  template <typename Item>
  const Item& pick(const std::vector<Item>& items) {
    return items[below(static_cast<std::uint32_t>(items.size()))];
  }
  char32_t in(const Ranges& ranges) {
    const CodePointRange range = pick(ranges);
    return range.first + below(range.last - range.first + 1);
  }

 private:
  runtime::SplitMix64 numbers_;
};

}  // namespace

std::string fuzz_string(std::uint64_t seed) {
  Random random(seed);
  std::string out;
  const auto put = [&](char32_t c) { text::append_utf8(c, out); };
  const std::uint32_t segments = 1 + random.below(12);
  for (std::uint32_t segment = 0; segment < segments; ++segment) {
    const std::uint32_t kind = random.below(15);
    if (kind == 0) {
      const std::uint32_t c = random.below(0x110000 - 0x800);
      put(c < 0xD800 ? c : c + 0x800);
    } else if (kind == 1) {
      put(U'A' + random.below(58));
      const std::uint32_t marks = 1 + random.below(6);
      for (std::uint32_t i = 0; i < marks; ++i) put(random.in(kMarks));
    } else if (kind == 2) {
      out += random.pick(kSpecials);
    } else if (kind == 3) {
      put(random.pick(kControls));
    } else if (kind == 4) {
      if (random.below(8) == 0) {
        const std::uint32_t letters = 90 + random.below(130);
        for (std::uint32_t i = 0; i < letters; ++i) put(U'a' + random.below(26));
      }
    } else if (kind == 5) {
      put(0x21 + random.below(0x5E));
    } else if (kind <= 8) {
      out += random.pick(kWords);
    } else {
      const std::uint32_t letters = 1 + random.below(5);
      for (std::uint32_t i = 0; i < letters; ++i) put(random.in(kScripts[kind - 9]));
    }
    out += random.pick(kSpaces);
  }
  return out;
}

}  // namespace tilewright::testing
