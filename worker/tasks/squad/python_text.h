// Python's rules for text, which the official evaluation of SQuAD uses. Text is valid UTF-8, and
// offsets count code points, as in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::tasks::squad {

// str.isspace of one character: Unicode's white space and the separators U+001C to U+001F.
bool is_python_space(char32_t c);

// \w of the module re: letters, numbers and the underscore, but no marks.
bool is_python_word(char32_t c);

// str.lower: full lower case, with a final sigma at the end of a word.
std::string python_lower(std::string_view text);

// str.lstrip().
std::string_view python_lstrip(std::string_view text);

// str.split(): the words between white space.
std::vector<std::string_view> python_split(std::string_view text);

// Access to a text by code points.
class CodePoints {
 public:
  // Keeps a view of `text`.
  explicit CodePoints(std::string_view text);

  // Code points of the text.
  std::size_t size() const { return size_; }

  // text[begin:end]; both are at most size().
  std::string_view slice(std::size_t begin, std::size_t end) const;

  // The byte offset of a code point; index is at most size().
  std::size_t byte_of(std::size_t index) const;

 private:
  std::string_view text_;
  std::size_t size_;
  std::vector<std::uint32_t> bytes_;  // of every code point and the end; empty for ASCII
};

// The number of code points of a text.
std::size_t count_code_points(std::string_view text);

}  // namespace tilewright::tasks::squad
