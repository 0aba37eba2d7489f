// The built programs have the hardening of cmake/Modules.cmake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Machine code that the compiler adds.
constexpr std::string_view kEndbr64 = "\xf3\x0f\x1e\xfa";  // a valid target of an indirect call
constexpr std::string_view kStackProbe("\x48\x83\x0c\x24\x00",
                                       5);  // orq $0, (%rsp): touches a page

// A code section: where it is loaded and where the file holds it.
struct CodeSection {
  std::uint64_t address = 0, offset = 0, size = 0;
  std::string_view code;
};

class Hardening : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string readelf(const std::string& flag) {
    ChildCommand command;
    command.program = "/usr/bin/readelf";
    command.arguments = {flag, "--wide", testing::program(GetParam()).string()};
    command.environment = environment_with_overrides({{"LC_ALL", "C"}});
    const testing::CommandResult result = testing::run_command(command);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }

  static std::string content() { return testing::read_text(testing::program(GetParam())); }

  // Its code is a view of `content`.
  static CodeSection text_section(std::string_view content) {
    //  [16] .text             PROGBITS        0000000000062080 062080 2b1c95 ...
    const std::regex pattern(R"(\] \.text +PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) )");
    const std::string sections = readelf("--sections");
    std::smatch match;
    if (!std::regex_search(sections, match, pattern)) {
      ADD_FAILURE() << "no section .text in\n" << sections;
      return {};
    }
    const auto number = [&](int group) { return std::stoull(match[group], nullptr, 16); };
    CodeSection text{number(1), number(2), number(3), {}};
    text.code = content.substr(text.offset, text.size);
    return text;
  }
};

TEST_P(Hardening, ProgramsArePositionIndependent) {
  EXPECT_THAT(readelf("--file-header"), ContainsRegex("Type: +DYN"))
      << "linked at a fixed address: expected -fPIE -pie";
  EXPECT_THAT(readelf("--dynamic"), ContainsRegex("FLAGS_1[^\n]* PIE"))
      << "a shared library, not a program: expected -pie";
}

TEST_P(Hardening, ProgramsBindAllSymbolsAtStart) {
  EXPECT_THAT(readelf("--dynamic"), ContainsRegex("FLAGS_1[^\n]* NOW"))
      << "symbols are bound at their first call: expected -Wl,-z,now";
}

// Full RELRO: with the immediate binding that the test above checks, the table of library functions
// (.got.plt) is part of the read-only segment.
TEST_P(Hardening, ProgramsMakeRelocationsReadOnly) {
  EXPECT_THAT(readelf("--program-headers"), HasSubstr("GNU_RELRO"))
      << "relocated data stays writable: expected -Wl,-z,relro";
  EXPECT_THAT(readelf("--sections"), Not(HasSubstr(" .got.plt ")))
      << "addresses of library functions stay writable: expected -Wl,-z,now";
}

TEST_P(Hardening, ProgramsHaveNoWritableCode) {
  const std::string headers = readelf("--program-headers");
  EXPECT_THAT(headers, ContainsRegex("GNU_STACK [^\n]* RW +0x"))
      << "the stack is executable: expected -Wl,-z,noexecstack";
  EXPECT_THAT(headers, Not(HasSubstr("RWE"))) << "a segment is writable and executable";
}

TEST_P(Hardening, FunctionsCheckTheirStackFrame) {
  EXPECT_THAT(readelf("--dyn-syms"), HasSubstr("__stack_chk_fail@"))
      << "no function checks for stack overflows: expected -fstack-protector-strong";
}

TEST_P(Hardening, LargeStackFramesTouchEveryPage) {
  const std::string program = content();
  EXPECT_NE(text_section(program).code.find(kStackProbe), std::string_view::npos)
      << "a large stack frame can skip the guard page: expected -fstack-clash-protection";
}

TEST_P(Hardening, LibcCallsCheckTheSizeOfTheirBuffer) {
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "debug and sanitizer builds are not fortified";
#else
  // For example __memcpy_chk@GLIBC_2.3.4; __stack_chk_fail is not one of them.
  EXPECT_THAT(readelf("--dyn-syms"), ContainsRegex(" __[a-z0-9]+_chk@"))
      << "libc functions do not check the size of their buffers: expected -D_FORTIFY_SOURCE=3";
#endif
}

TEST_P(Hardening, FunctionsStartWithATargetForIndirectCalls) {
  const std::string program = content();
  const CodeSection text = text_section(program);
  //   Num:    Value          Size Type    Bind   Vis      Ndx Name
  const std::regex function(R"(: ([0-9a-f]{16}) +[0-9]+ FUNC +(GLOBAL|WEAK) )");
  std::istringstream symbols(readelf("--symbols"));
  int functions = 0;
  for (std::string line; std::getline(symbols, line);) {
    std::smatch match;
    if (line.find("tilewright") == std::string::npos) continue;
    if (!std::regex_search(line, match, function)) continue;
    const std::uint64_t address = std::stoull(match[1], nullptr, 16);
    ASSERT_GE(address, text.address) << line;
    ASSERT_LE(address + kEndbr64.size(), text.address + text.size) << line;
    ++functions;
    EXPECT_EQ(text.code.substr(address - text.address, kEndbr64.size()), kEndbr64)
        << line << ": does not start with endbr64: expected -fcf-protection=full";
  }
  EXPECT_GT(functions, 100) << "found no symbols of the project's functions";
}

// The launcher of the worker image is static, so it has no table of the functions that it imports.
class LauncherHardening : public Hardening {};

TEST_P(LauncherHardening, IsAStaticPositionIndependentProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizer builds are not static";
#else
  EXPECT_THAT(readelf("--file-header"), ContainsRegex("Type: +DYN"));
  EXPECT_THAT(readelf("--dynamic"),
              ::testing::AllOf(ContainsRegex("FLAGS_1[^\n]* NOW"),
                               ContainsRegex("FLAGS_1[^\n]* PIE"), Not(HasSubstr("NEEDED"))));
  EXPECT_THAT(readelf("--program-headers"),
              ::testing::AllOf(HasSubstr("GNU_RELRO"), ContainsRegex("GNU_STACK [^\n]* RW +0x"),
                               Not(HasSubstr("RWE")), Not(HasSubstr("INTERP"))))
      << "the dynamic loader runs for it: expected -static-pie";
  EXPECT_THAT(readelf("--symbols"), HasSubstr("__stack_chk_fail"));
#endif
}

INSTANTIATE_TEST_SUITE_P(Launcher, LauncherHardening, ::testing::Values("tilewright-launcher"));

INSTANTIATE_TEST_SUITE_P(Programs, Hardening, ::testing::Values("tilewright", "tilewright-worker"),
                         [](const auto& instance) {
                           const std::string name = instance.param;
                           return name == "tilewright" ? "Operator" : "Worker";
                         });

}  // namespace
}  // namespace tilewright
