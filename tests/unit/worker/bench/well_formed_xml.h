// Checks that text is well-formed XML of the kind that the project writes: elements, attributes in
// double quotes, character data with entities; no comments, CDATA or processing instructions.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace tilewright::testing {

inline ::testing::AssertionResult is_well_formed_xml(const std::string& text) {
  static const std::regex kTag(R"re(^<(/?)([A-Za-z]+)((?:\s+[A-Za-z-]+="[^"<&]*")*)\s*(/?)>)re");
  static const std::regex kData(R"re(^(?:[^<&>]|&(?:amp|lt|gt|quot);)+)re");
  std::vector<std::string> open;
  bool root_closed = false;
  std::string rest = text;
  while (!rest.empty()) {
    std::smatch match;
    if (std::regex_search(rest, match, kTag)) {
      const std::string name = match[2];
      if (root_closed) return ::testing::AssertionFailure() << "a second root: " << name;
      if (match[1].length() > 0) {
        if (open.empty() || open.back() != name) {
          return ::testing::AssertionFailure() << "</" << name << "> without its beginning";
        }
        open.pop_back();
      } else if (match[4].length() == 0) {
        open.push_back(name);
      }
      root_closed = open.empty();
    } else if (std::regex_search(rest, match, kData)) {
      const bool blank = match.str().find_first_not_of(" \n") == std::string::npos;
      if (open.empty() && !blank) return ::testing::AssertionFailure() << "text outside the root";
    } else {
      return ::testing::AssertionFailure() << "neither a tag nor text: " << rest.substr(0, 80);
    }
    rest = match.suffix();
  }
  if (!root_closed) return ::testing::AssertionFailure() << "no complete root element";
  return ::testing::AssertionSuccess();
}

}  // namespace tilewright::testing
