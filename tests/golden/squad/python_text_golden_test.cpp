// Compares Python's rules for text with Python, for every code point that its Unicode version has.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/squad/squad_golden.h"
#include "worker/tasks/squad/python_text.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

using testing::SequenceHash;

std::vector<char32_t> assigned_code_points(const std::string& unassigned) {
  std::vector<char32_t> found;
  std::istringstream in(unassigned);
  char32_t next = 0;
  const auto add_until = [&](char32_t end) {
    for (; next < end; ++next) {
      if (next < 0xD800 || next >= 0xE000) found.push_back(next);
    }
  };
  for (std::string range; in >> range;) {
    const std::size_t dash = range.find('-');
    add_until(static_cast<char32_t>(std::stoul(range.substr(0, dash), nullptr, 16)));
    next = static_cast<char32_t>(std::stoul(range.substr(dash + 1), nullptr, 16)) + 1;
  }
  add_until(0x110000);
  return found;
}

TEST(PythonText, EqualsPythonForEveryCodePoint) {
  const auto golden = testing::squad_goldens().at("text");
  const std::string sigma = "\u03a3";
  SequenceHash lower, after, before, classes;
  std::vector<std::int32_t> found;
  const auto assigned = assigned_code_points(golden.at("unassigned").get<std::string>());
  EXPECT_GT(assigned.size(), 280'000U);
  for (const char32_t code_point : assigned) {
    std::string c;
    text::append_utf8(code_point, c);
    lower.text(python_lower(c));
    after.text(python_lower("a" + c + sigma) + python_lower(c + sigma));
    before.text(python_lower("A" + sigma + c) + python_lower("A" + sigma + c + "b"));
    found.push_back((is_python_word(code_point) ? 2 : 0) + (is_python_space(code_point) ? 1 : 0));
  }
  classes.sequence(found);
  EXPECT_EQ(lower.hex(), golden.at("lower").get<std::string>());
  EXPECT_EQ(after.hex(), golden.at("sigma_after").get<std::string>());
  EXPECT_EQ(before.hex(), golden.at("sigma_before").get<std::string>());
  EXPECT_EQ(classes.hex(), golden.at("classes").get<std::string>());
}

}  // namespace
}  // namespace tilewright::tasks::squad
