// Properties of code points for BERT's normaliser. Results equal those of Hugging Face's tokenizers
// library, which uses other Unicode versions than utf8proc: categories of Unicode 8, decompositions
// of Unicode 9, lower case of Unicode 17.
#pragma once

#include <cstddef>

namespace tilewright::text {

// Unicode's White_Space.
bool is_whitespace(char32_t c);

// Categories Cc, Cf and Co, without tab, line feed and carriage return. Removed from clean text.
bool is_control(char32_t c);

// Category P*, and every printable ASCII character except letters, digits and space.
bool is_punctuation(char32_t c);

// Category Mn: an accent after decomposition.
bool is_nonspacing_mark(char32_t c);

// Ideographs that BERT treats as separate words: CJK blocks up to extension E, without kana and
// hangul.
bool is_cjk_ideograph(char32_t c);

// \w in regular expressions: alphabetic characters, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t c);

// Simple lower case. The caller handles U+0130, whose full lower case has two code points.
char32_t to_lower(char32_t c);

// Canonical combining class, 0 for starters.
int combining_class(char32_t c);

// Upper bound of a canonical decomposition, in code points. Unicode's stability policy guarantees
// that decompositions do not become longer.
constexpr std::size_t kMaxDecomposition = 16;

// Writes the full canonical decomposition of c (c itself if it has none) and returns its length.
std::size_t decompose(char32_t c, char32_t (&out)[kMaxDecomposition]);

}  // namespace tilewright::text
