// The part of the shell's language in which the CPU guides write their commands: words, quotes,
// backslashes, comments, `;`, `&&`, line ends, assignments, $NAME, ${NAME}, ~ and $(date +FORMAT).
// Source: POSIX.1-2017, Shell Command Language, 2.2 to 2.10; where bash differs, as bash does.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::launch {

// A part of a word between two changes of quoting.
struct ShellPiece {
  enum class Kind { kText, kVariable, kDate };
  Kind kind = Kind::kText;
  bool quoted = false;  // no field splitting
  std::string text;     // kText: the text; kVariable: the name; kDate: unused
  std::vector<std::vector<ShellPiece>> arguments = {};  // kDate: the words after `date`
};

struct ShellWord {
  std::vector<ShellPiece> pieces;
  char pattern = 0;    // an unquoted character of a pattern of file names: * ? [
  bool brace = false;  // an unquoted {
  bool tilde = false;  // "~" after "=" or ":", which is expanded in an assignment
};

// A command without control operators.
struct ShellCommand {
  std::vector<ShellWord> words;
};

// Error: kCommandNotFound, with the construct that is not supported.
Result<std::vector<ShellCommand>> parse_shell(std::string_view text);

// NAME of a word NAME=VALUE whose NAME= is not quoted; empty if the word is no assignment.
std::string_view assigned_name(const ShellWord& word);

// In expanded text, a date stands between these characters: kDateBegin date +%Y kDateEnd. The
// characters do not occur in parsed text.
inline constexpr char kDateBegin = '\x01';
inline constexpr char kDateEnd = '\x02';

// Expands the words of one script.
class ShellExpansion {
 public:
  // Empty: not set. unknown_value(): expanded as a value without blanks.
  using Lookup = std::function<std::string(const std::string& name)>;

  explicit ShellExpansion(Lookup lookup) : lookup_(std::move(lookup)) {}

  // The value of an assignment NAME=VALUE, which is not split into fields.
  Result<std::string> assignment(const ShellWord& word);
  // Appends the fields of another word: none, one or several.
  Status fields(const ShellWord& word, std::vector<std::string>& fields);

 private:
  void append(std::string& text, std::string_view more);
  std::string date(const ShellPiece& piece);
  void split(const std::string& value, std::string& field, bool& open,
             std::vector<std::string>& fields);

  const Lookup lookup_;
  std::size_t expanded_bytes_ = 0;  // of all words, because variables can double each other
};

}  // namespace tilewright::launch
