#include "common/launch/shell.h"

#include <fmt/format.h>

#include <optional>

#include "common/base/printable.h"
#include "common/launch/dates.h"
#include "common/launch/unknown_value.h"

namespace tilewright::launch {
namespace {

// As many bytes as Linux allows for the arguments and environment of a process by default.
constexpr std::size_t kMostExpandedBytes = std::size_t{2} << 20;
constexpr std::string_view kExpected =
    "expected only words, quotes, \";\", \"&&\", $NAME and $(date +FORMAT), because Tilewright "
    "runs no shell";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

[[noreturn]] void refuse(std::string_view found, std::string_view expected = kExpected) {
  throw Failure(ExitCode::kCommandNotFound, fmt::format("found {}, {}", found, expected));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<ShellCommand> commands() {
    for (const char c : text_) {
      if (c == '\0' || c == kDateBegin || c == kDateEnd) refuse("a control character");
    }
    std::vector<ShellCommand> commands;
    bool after_and = false;  // "&&" needs a command
    for (;;) {
      skip_blanks();
      const std::optional<char> c = peek();
      if (c == '\n') {
        take();
        continue;
      }
      if (!c) break;
      commands.push_back(command());
      after_and = end_command();
    }
    if (after_and) refuse("nothing after \"&&\"", "expected a command");
    return commands;
  }

 private:
  // A backslash and a line end are removed wherever they stand, except in single quotes and
  // comments, which read the text itself.
  void join_lines() {
    while (text_.substr(at_).starts_with("\\\n")) at_ += 2;
  }
  std::optional<char> peek() {
    join_lines();
    return at_ < text_.size() ? std::optional(text_[at_]) : std::nullopt;
  }
  char take() { return text_[at_++]; }  // after peek()
  bool take_if(char expected) {
    if (peek() != expected) return false;
    ++at_;
    return true;
  }

  void skip_blanks() {
    while (peek() && is_blank(*peek())) take();
    if (peek() == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    }
  }

  ShellCommand command() {
    ShellCommand command;
    for (;;) {
      skip_blanks();
      const std::optional<char> c = peek();
      if (!c || *c == '\n' || *c == ';' || *c == '&') break;
      command.words.push_back(word());
    }
    if (command.words.empty()) {
      refuse(fmt::format("\"{}\" without a command before it", *peek()), "expected a command");
    }
    return command;
  }

  // Returns whether another command must follow.
  bool end_command() {
    if (take_if('&')) {
      if (!take_if('&')) refuse("\"&\", which starts a command in the background");
      return true;
    }
    if (take_if(';')) {
      if (peek() == ';') refuse("\";;\"");
    } else {
      take_if('\n');
    }
    return false;
  }

  ShellWord word() {
    ShellWord word;
    take_tilde(word);
    for (;;) {
      const std::optional<char> next = peek();
      if (!next || is_blank(*next) || *next == '\n' || *next == ';' || *next == '&') break;
      if (*next == ')' && substitution_) break;
      const char c = take();
      switch (c) {
        case '\'':
          single_quoted(word);
          break;
        case '"':
          double_quoted(word);
          break;
        case '\\':
          // The last character of a text stands for itself.
          add(word, at_ < text_.size() ? take() : '\\', true);
          break;
        case '$':
          dollar(word, false);
          break;
        case '|':
          refuse("\"|\", a pipe");
        case '<':
        case '>':
          refuse(fmt::format("\"{}\", a redirection", c));
        case '`':
          refuse("\"`\", a command substitution");
        case '(':
        case ')':
          refuse(fmt::format("\"{}\"", c));
        case '~':
          word.tilde = word.tilde || follows_separator(word);
          add(word, c, false);
          break;
        case '*':
        case '?':
        case '[':
          word.pattern = c;
          add(word, c, false);
          break;
        case '{':
          word.brace = true;
          [[fallthrough]];
        default:
          add(word, c, false);
      }
    }
    return word;
  }

  // "~" and "~/..." are the home directory; "~name" is that of another user.
  void take_tilde(ShellWord& word) {
    if (!take_if('~')) return;
    const std::optional<char> c = peek();
    if (c && !is_blank(*c) && *c != '\n' && *c != ';' && *c != '&' && *c != '/' && *c != ')') {
      refuse("\"~\" before a name", "expected \"~/\"");
    }
    word.pieces.push_back({ShellPiece::Kind::kVariable, true, "HOME"});
    word.pieces.push_back({ShellPiece::Kind::kText, true, ""});
  }

  static bool follows_separator(const ShellWord& word) {
    if (word.pieces.empty()) return false;
    const ShellPiece& last = word.pieces.back();
    return last.kind == ShellPiece::Kind::kText && !last.quoted &&
           (last.text.ends_with('=') || last.text.ends_with(':'));
  }

  static void add(ShellWord& word, char c, bool quoted) { add(word, std::string(1, c), quoted); }
  static void add(ShellWord& word, std::string_view text, bool quoted) {
    if (word.pieces.empty() || word.pieces.back().kind != ShellPiece::Kind::kText ||
        word.pieces.back().quoted != quoted) {
      word.pieces.push_back({ShellPiece::Kind::kText, quoted, ""});
    }
    word.pieces.back().text += text;
  }

  void single_quoted(ShellWord& word) {
    const std::size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) refuse("a ' that is not closed", "expected another '");
    add(word, text_.substr(at_, end - at_), true);
    at_ = end + 1;
  }

  void double_quoted(ShellWord& word) {
    add(word, "", true);
    for (;;) {
      if (!peek()) refuse("a \" that is not closed", "expected another \"");
      const char c = take();
      if (c == '"') return;
      if (c == '`') refuse("\"`\", a command substitution");
      if (c == '$') {
        dollar(word, true);
      } else if (c == '\\' && at_ < text_.size() &&
                 std::string_view("$`\"\\").find(text_[at_]) != std::string_view::npos) {
        add(word, take(), true);
      } else {
        add(word, c, true);
      }
    }
  }

  // After a "$".
  void dollar(ShellWord& word, bool quoted) {
    const std::optional<char> c = peek();
    if (c && is_name_start(*c)) {
      word.pieces.push_back({ShellPiece::Kind::kVariable, quoted, name()});
    } else if (c == '{') {
      take();
      std::string variable;
      if (peek() && is_name_start(*peek())) variable = name();
      if (variable.empty() || !take_if('}')) {
        refuse(fmt::format("\"${{{}\" without a name and \"}}\"", variable),
               "expected ${NAME}, because Tilewright runs no shell");
      }
      word.pieces.push_back({ShellPiece::Kind::kVariable, quoted, variable});
    } else if (c == '(') {
      take();
      date(word, quoted);
    } else if (!quoted ||
               (c && std::string_view("*@#?-$!0123456789[").find(*c) != std::string_view::npos)) {
      refuse(fmt::format("\"${}\" without a name", c ? std::string(1, *c) : ""));
    } else {
      add(word, '$', quoted);
    }
  }

  std::string name() {
    std::string name;
    while (peek() && is_name_part(*peek())) name += take();
    return name;
  }

  // After "$(".
  void date(ShellWord& word, bool quoted) {
    const std::string_view rest = text_.substr(at_);
    const std::string source = excerpt(rest.substr(0, rest.find_first_of(")\n")));
    if (substitution_ || rest.starts_with("(")) {
      refuse(fmt::format("\"$({})\"", source));
    }
    substitution_ = true;
    ShellPiece piece{ShellPiece::Kind::kDate, quoted, ""};
    bool first = true;
    for (;;) {
      while (peek() && is_blank(*peek())) take();
      if (take_if(')')) break;
      const std::optional<char> c = peek();
      if (!c || *c == '\n' || *c == ';' || *c == '&' || *c == '#') {
        refuse(fmt::format("\"$({}\"", source), "expected $(date +FORMAT)");
      }
      const ShellWord argument = this->word();
      if (argument.pattern != 0 || argument.brace || argument.tilde) {
        refuse(fmt::format("\"$({})\"", source), "expected $(date +FORMAT) with a quoted FORMAT");
      }
      if (first) {
        const bool is_date = argument.pieces.size() == 1 &&
                             argument.pieces[0].kind == ShellPiece::Kind::kText &&
                             argument.pieces[0].text == "date";
        if (!is_date) refuse(fmt::format("\"$({})\"", source));
      } else {
        piece.arguments.push_back(argument.pieces);
      }
      first = false;
    }
    if (first) refuse("\"$()\"");
    substitution_ = false;
    word.pieces.push_back(std::move(piece));
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  bool substitution_ = false;  // inside of $(...)
};

}  // namespace

Result<std::vector<ShellCommand>> parse_shell(std::string_view text) {
  try {
    return Parser(text).commands();
  } catch (const Failure& failure) {
    return failure.error();
  }
}

std::string_view assigned_name(const ShellWord& word) {
  if (word.pieces.empty()) return "";
  const ShellPiece& first = word.pieces.front();
  if (first.kind != ShellPiece::Kind::kText || first.quoted || !is_name_start(first.text.front())) {
    return "";
  }
  const std::size_t end = first.text.find('=');
  const std::string_view name = std::string_view(first.text).substr(0, end);
  if (end == std::string::npos) return "";
  for (const char c : name) {
    if (!is_name_part(c)) return "";
  }
  return name;
}

void ShellExpansion::append(std::string& text, std::string_view more) {
  expanded_bytes_ += more.size();
  if (expanded_bytes_ > kMostExpandedBytes) {
    throw Failure(ExitCode::kCommandNotFound,
                  fmt::format("found variables that expand to more than {} bytes, expected less",
                              kMostExpandedBytes));
  }
  text += more;
}

std::string ShellExpansion::date(const ShellPiece& piece) {
  std::vector<std::string> words;
  for (const std::vector<ShellPiece>& pieces : piece.arguments) {
    std::string& word = words.emplace_back();
    for (const ShellPiece& part : pieces) {
      const bool is_variable = part.kind == ShellPiece::Kind::kVariable;
      const std::string text = is_variable ? lookup_(part.text) : part.text;
      if (const std::string unknown = unknown_variable(text); !unknown.empty()) {
        throw Failure(ExitCode::kCommandNotFound, refuse_unknown(unknown));
      }
      if (is_variable && !part.quoted &&
          (text.empty() || text.find_first_of(" \t\n*?[") != std::string::npos)) {
        refuse(fmt::format("${} without quotes in $(date ...)", part.text), "expected \"+FORMAT\"");
      }
      append(word, text);
    }
  }
  const DateCall call = DateCall::from_words(words).or_throw();
  if (!piece.quoted && call.needs_quotes()) {
    refuse(fmt::format("{} without quotes, which a shell splits at its blanks", call.text()),
           "expected it in double quotes");
  }
  const std::string text = call.text();  // "$(date ...)"
  return kDateBegin + text.substr(2, text.size() - 3) + kDateEnd;
}

Result<std::string> ShellExpansion::assignment(const ShellWord& word) {
  try {
    if (word.tilde) refuse("\"~\" in the value of a variable", "expected an absolute path");
    std::string text;
    for (const ShellPiece& piece : word.pieces) {
      if (piece.kind == ShellPiece::Kind::kVariable) {
        append(text, lookup_(piece.text));
      } else {
        // Field splitting does not apply, so the output of date may hold blanks.
        ShellPiece quoted = piece;
        quoted.quoted = true;
        append(text, piece.kind == ShellPiece::Kind::kDate ? date(quoted) : piece.text);
      }
    }
    return text.substr(assigned_name(word).size() + 1);
  } catch (const Failure& failure) {
    return failure.error();
  }
}

// An unquoted value. `open`: `field` has begun, perhaps with quotes and no characters.
void ShellExpansion::split(const std::string& value, std::string& field, bool& open,
                           std::vector<std::string>& fields) {
  bool in_date = false;
  std::string inside;
  for (const char c : value) {
    if (c == kDateBegin) {
      in_date = true;
      inside.clear();
    } else if (c == kDateEnd) {
      in_date = false;
      if (const auto call = DateCall::parse(inside); !call.ok() || call->needs_quotes()) {
        refuse(fmt::format("the output of {} in a variable without quotes", excerpt(inside)),
               "expected \"$NAME\" in double quotes");
      }
    } else if (in_date) {
      inside += c;
    } else if (c == '*' || c == '?' || c == '[') {
      refuse(fmt::format("'{}' in the value of a variable without quotes", c),
             "expected \"$NAME\" in double quotes");
    }
    if (!in_date && c != kDateEnd && (is_blank(c) || c == '\n')) {
      if (open) fields.push_back(std::move(field));
      field.clear();
      open = false;
      continue;
    }
    append(field, std::string_view(&c, 1));
    open = true;
  }
}

Status ShellExpansion::fields(const ShellWord& word, std::vector<std::string>& fields) {
  try {
    if (word.pattern != 0 || word.brace) {
      refuse(fmt::format("'{}' without quotes, a pattern of file names or a list",
                         word.brace ? '{' : word.pattern),
             "expected it in quotes, because Tilewright runs no shell");
    }
    std::string field;
    bool open = false;
    for (const ShellPiece& piece : word.pieces) {
      if (piece.kind == ShellPiece::Kind::kVariable && !piece.quoted) {
        split(lookup_(piece.text), field, open, fields);
        continue;
      }
      open = true;
      append(field, piece.kind == ShellPiece::Kind::kVariable ? lookup_(piece.text)
                    : piece.kind == ShellPiece::Kind::kDate   ? date(piece)
                                                              : piece.text);
    }
    if (open) fields.push_back(std::move(field));
    return {};
  } catch (const Failure& failure) {
    return failure.error();
  }
}

}  // namespace tilewright::launch
