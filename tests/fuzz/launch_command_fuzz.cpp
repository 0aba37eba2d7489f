#include <map>

#include "common/base/check.h"
#include "common/launch/command.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

constexpr std::int64_t kLaunchTime = 1764000123;
// More than the parser's bound, for the words and the variables that hold them again.
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::string variable(const char* name) {
  static const std::map<std::string, std::string> kVariables = {
      {"A", "one"}, {"B", " two  words "}, {"HOME", "/root"}, {"PET_NNODES", "1:4"}};
  const auto found = kVariables.find(name);
  return found == kVariables.end() ? "" : found->second;
}

void check_error(const Error& error) {
  check_message(error.message);
  TW_CHECK(error.code == ExitCode::kCommandNotFound || error.code == ExitCode::kUsage,
           "exit code {}", static_cast<int>(error.code));
}

// `shell`: each date of an accepted command can be expanded.
void check_command(const std::vector<std::string>& words, bool shell) {
  const Result<launch::Command> command = launch::interpret(words, variable);
  if (!command.ok()) return check_error(command.error());
  std::size_t bytes = 0;
  const auto check = [&](const std::string& text) {
    bytes += text.size();
    const Result<std::string> expanded = launch::expand_dates(text, kLaunchTime);
    if (!expanded.ok()) {
      check_message(expanded.error().message);
      TW_CHECK(!shell, "a date of a command cannot be expanded: {}", expanded.error().message);
    } else if (shell) {
      TW_CHECK(text.find('\x01') == std::string::npos && text.find('\x02') == std::string::npos,
               "a mark of a date remains");
    }
  };
  for (const std::string& argument : command->arguments) check(argument);
  for (const auto& [name, value] : command->variables) check(value);
  TW_CHECK(!shell || bytes < kMostBytes, "{} bytes", bytes);
  TW_CHECK(!launch::describe(*command).empty(), "no description");
}

}  // namespace

int fuzz_launch_command(const std::uint8_t* data, std::size_t size) {
  const std::string text(as_text(data, size));
  check_command({"bash", "-c", text}, true);
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == '\n' && words.size() < 200) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  check_command(words, false);
  return 0;
}

}  // namespace tilewright::fuzz
