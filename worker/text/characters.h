// What BERT's normaliser asks about one code point. The answers are those of Hugging Face's
// tokenizers library, whose tables are of other Unicode versions than utf8proc's: its categories
// are Unicode 8's, its decompositions Unicode 9's, its lower case is Unicode 17's.
#pragma once

#include <cstddef>

namespace tilewright::text {

// Unicode's White_Space.
bool is_whitespace(char32_t c);

// Categories Cc, Cf and Co, without tab, line feed and carriage return. Removed from clean text.
bool is_control(char32_t c);

// Category P*, and every ASCII character that is printable and neither letter, digit nor space.
bool is_punctuation(char32_t c);

// Category Mn: what is left of an accent after decomposition.
bool is_nonspacing_mark(char32_t c);

// The ideographs that BERT sets apart as words: the CJK blocks it was trained with, and no kana,
// no hangul and none of the extensions after E.
bool is_cjk_ideograph(char32_t c);

// \w of regular expressions: alphabetic characters, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t c);

// Simple lower case; U+0130 alone has two code points there and is the caller's affair.
char32_t to_lower(char32_t c);

// Canonical combining class, 0 for starters.
int combining_class(char32_t c);

// The longest canonical decomposition of any code point, in code points (Unicode's stability policy
// lets none grow); room to spare.
constexpr std::size_t kMaxDecomposition = 16;

// Writes the full canonical decomposition of c (c itself if it has none); how many were written.
std::size_t decompose(char32_t c, char32_t (&out)[kMaxDecomposition]);

}  // namespace tilewright::text
