// Generated commands have the meaning that bash gives them: each one that interpret() accepts runs
// in bash with a program `python` that writes down what it was started with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <random>

#include "common/launch/command.h"
#include "common/process/child_process.h"
#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDate = 1700000000;
constexpr std::array<const char*, 5> kNames = {"A", "B", "C", "D", "E"};

// What the script is started with: the directory, the variables of kNames, the arguments.
using Start = std::vector<std::string>;

class ShellDifferential : public ::testing::Test {
 protected:
  ShellDifferential() {
    // A script has up to three steps `cd`, from the root or from home.
    for (const char* from : {"", "home"}) {
      for (const char* first : {"d1", "d 3"}) {
        for (const char* second : {"d1", "d 3"}) {
          for (const char* third : {"d1", "d 3"}) {
            fs::create_directories(root() / from / first / second / third);
          }
        }
      }
    }
    fs::create_directory(root() / "bin");
    std::string record = "#!/bin/bash\nprintf '%s\\0' \"$PWD\" ";
    for (const char* name : kNames) record += "\"${" + std::string(name) + "-}\" ";
    write("bin/python", record + "\"$@\" >\"$RECORD\"\n");
    write("bin/pip", "#!/bin/bash\n");
    write("bin/lscpu", "#!/bin/bash\n");
    write("bin/date", "#!/bin/bash\nexec /bin/date -d @" + std::to_string(kDate) + " \"$@\"\n");
    write("home/setvars.sh", "");
    environment_ = {{"HOME", (root() / "home").string()},
                    {"A", "one"},
                    {"B", "two  words "},
                    {"C", " a=b\\c\td\n"},
                    {"PATH", (root() / "bin").string()},
                    {"TZ", "America/New_York"},
                    {"LC_ALL", "C"},
                    {"RECORD", (root() / "record").string()}};
    setenv("TZ", "America/New_York", 1);
    tzset();
  }
  ~ShellDifferential() override {
    unsetenv("TZ");
    tzset();
  }

  fs::path root() const { return fs::canonical(folder_.path()); }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(root() / name) << content;
    fs::permissions(root() / name, fs::perms::owner_all);
  }

  Result<Start> ours(const std::string& text) const {
    const std::vector<std::string> words = {"bash", "-c", text};
    const auto command = interpret(words, [&](const char* name) { return variable(name); });
    if (!command.ok()) return command.error();
    std::string directory = (root() / command->directory).lexically_normal();
    if (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
    Start start = {directory};
    for (const char* name : kNames) {
      const auto set = command->variables.find(name);
      start.push_back(set != command->variables.end() ? expand_dates(set->second, kDate).or_throw()
                                                      : variable(name));
    }
    start.push_back(command->script);
    for (const std::string& argument : command->arguments) {
      const auto expanded = expand_dates(argument, kDate);
      if (!expanded.ok()) return expanded.error();
      start.push_back(*expanded);
    }
    return start;
  }

  // nullopt: bash did not start the script.
  std::optional<Start> bash(const std::string& text) const {
    fs::remove(root() / "record");
    ChildCommand command;
    command.program = "/bin/bash";
    command.arguments = {"-c", text};
    command.working_directory = root();
    for (const auto& [name, value] : environment_)
      command.environment.push_back(fmt::format("{}={}", name, value));
    const auto result = testing::run_command(command);
    if (!fs::exists(root() / "record")) return std::nullopt;
    EXPECT_EQ(result.output, "");
    Start start;
    std::istringstream record(testing::read_text(root() / "record"));
    for (std::string entry; std::getline(record, entry, '\0');) start.push_back(entry);
    return start;
  }

  // Whether interpret() accepts the text.
  bool compare(const std::string& text) const {
    SCOPED_TRACE(text);
    const auto expected = ours(text);
    if (!expected.ok()) {
      EXPECT_FALSE(expected.error().message.empty());
      return false;
    }
    const auto actual = bash(text);
    EXPECT_TRUE(actual.has_value());
    if (actual) {
      EXPECT_EQ(*expected, *actual);
    }
    return true;
  }

 private:
  std::string variable(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  const testing::TemporaryDirectory folder_;
  std::map<std::string, std::string> environment_;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string script() {
    std::string text;
    const int steps = below(4);
    for (int i = 0; i < steps; ++i) text += step() + separator();
    if (below(3) == 0) text += pick({"A", "E", "D"}) + "=" + word() + blank();
    text += "python run_qa.py";
    const int words = below(6);
    for (int i = 0; i < words; ++i) text += blank() + word();
    return text + pick({"", ";", " ; ", "\n", " \\\n", " # end", ";\n"});
  }

  // Words of special characters, most of which have no place in the language.
  std::string noise() {
    std::string text = "python run_qa.py ";
    constexpr std::string_view kCharacters = " \t\n\\\\\"\"''$$(){}[]*?;&|<>~#=:!ab1A`/-+%";
    const int size = 1 + below(10);
    for (int i = 0; i < size; ++i) {
      text += kCharacters[static_cast<std::size_t>(below(static_cast<int>(kCharacters.size())))];
    }
    return text;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  std::string pick(const std::vector<std::string>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }

  std::string step() {
    switch (below(7)) {
      case 0:
        return pick({"cd d1", "cd 'd 3'", "cd d\\ 3", "cd", "cd ~", "cd \"$HOME\"", "cd d1/.."});
      case 1:
        return "pip install -r " + word();
      case 2:
        return pick(
            {"source $HOME/setvars.sh", ". ~/setvars.sh", "lscpu", "python -m pip install x"});
      case 3:
        return "export " + pick({"A", "D", "E"}) + "=" + word();
      case 4:
        return "export " + pick({"A=1 B=2", "D", "\"D=x y\"", "A=$B D=$A", "D=$(date)"});
      case 5:
        return pick({"A", "D", "E"}) + "=" + word();
      default:
        return pick({"A=1 E=$A", "D=x lscpu", "D=$B\nexport D", "E=$(date '+%H %M')", "E=~"});
    }
  }

  std::string separator() { return pick({";", "; ", " && ", "\n", ";\n", "&&\n", " ; \\\n  "}); }
  std::string blank() { return pick({" ", "  ", "\t", " \\\n    ", "\\\n "}); }

  std::string word() {
    std::string text;
    const int atoms = 1 + below(4);
    for (int i = 0; i < atoms; ++i) text += atom();
    return text;
  }

  std::string atom() {
    switch (below(12)) {
      case 0:
        return pick(
            {"a", "--output_dir", "--x=", "3e-5", "/tmp/a.b", "%", "^", ",", "]", "}", "é"});
      case 1:
        return pick({"=", ":", "~", "~/x", "#", "!", "@", "-", "+"});
      case 2:
        return pick({"'a b'", "''", "'$A'", "'\\'", "'\"'", "'a\nb'", "'*'", "'#'", "';'"});
      case 3:
        return pick({"\"a b\"", "\"\"", "\"$A\"", "\"${B}\"", "\"\\$A\"", "\"\\\\\"", "\"\\\"\"",
                     "\"\\a\"", "\"it's\"", "\"a\\\nb\"", "\"a\nb\"", "\"$\"", "\"*\"", "\"$C\""});
      case 4:
        return pick({"$A", "$B", "$C", "${D}", "$E", "${A}b", "$A_"});
      case 5:
        return pick(
            {"\\ ", "\\\\", "\\$A", "\\\"", "\\'", "\\n", "\\;", "\\&", "\\*", "\\#", "\\~"});
      case 6:
        return "\\\n";
      case 7:
        return pick({"$(date +%Y%m%d_%H%M%S)", "$( date +%s )", "$(date -u +%F)", "$(date +'%j')",
                     "\"$(date \"+%H %M\")\"", "\"$(date)\"", "\"$(date +%a%n)\"", "$(date +%Z%q)",
                     "\"$(date +\"%-d $A\")\"", "$(date +%^b%#Z%_H)", "$(date +$A%y)"});
      case 8:
        return pick(
            {"*", "?", "[", "{a,b}", "$1", "$((1))", "|", ">", "`", "$(ls)", "&", "(", ")"});
      default:
        return pick({"a", "b1", "-c", "--name", "x/y"});
    }
  }

  std::mt19937 random_;
};

TEST_F(ShellDifferential, GeneratedScriptsMeanTheSame) {
  Generator generator(20261123);
  int accepted = 0;
  constexpr int kScripts = 500;
  for (int i = 0; i < kScripts && !HasFailure(); ++i) accepted += compare(generator.script());
  EXPECT_GT(accepted, kScripts / 3);
}

TEST_F(ShellDifferential, SpecialCharactersMeanTheSame) {
  Generator generator(14);
  int accepted = 0;
  for (int i = 0; i < 4000 && !HasFailure(); ++i) accepted += compare(generator.noise());
  EXPECT_GT(accepted, 100);
}

TEST_F(ShellDifferential, ChosenScriptsMeanTheSame) {
  // The last character of a text stands for itself, and "$" alone is refused: bash does not split
  // the fields of a word that ends in it.
  for (const char* text : {
           // What YAML makes of the folded text of a guide's manifest, and of one without deeper
           // indentation, where "\ " joins the blank to the next word.
           // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
           "cd d1; pip install -r requirements.txt; python run_qa.py \\\n  --bf16 \\\n  "
           "--output_dir /tmp/output_$(date +%Y%m%d_%H%M%S) \\\n  --do_eval;",
           "python run_qa.py \\ --bf16 \\ --output_dir /tmp/out;",
           "A=x python run_qa.py $A \"$A\"",
           "A=x; python run_qa.py $A",
           "D=x; python run_qa.py $D",
           "D=x E=$D; export E; python run_qa.py $E",
           "E=\"out $(date +%F)\"; python run_qa.py --output_dir \"$E\" ${E}",
           "python run_qa.py ~ ~/a a~ --x=~ a:~",
           "python run_qa.py \\",
           "python run_qa.py a\\",
           "python run_qa.py \"$\" \"$/\" \"a$ \" ${A}$A",
           "python run_qa.py ''$D'' $D \"$D\" $B'x' 'x'$B",
           "python run_qa.py '\\\n' \"\\\n\" \\\n",
           "python run_qa.py $\\\nA",
           "# comment \\\npython run_qa.py a#b # c ; d",
           "python run_qa.py \\# \\\n#x",
       }) {
    EXPECT_TRUE(compare(text));
  }
}

}  // namespace
}  // namespace tilewright::launch
