#include "controller/api/document.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "controller/api/encode.h"
#include "controller/api/scalar.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

std::string refusal(std::string_view text) {
  const Document document = read_yaml(text);
  return document.errors.empty() ? "" : document.errors.front().sentence();
}

TEST(Document, TypesPlainScalarsAsKubectlDoes) {
  const json expected = {{"", nullptr},
                         {"~", nullptr},
                         {"null", nullptr},
                         {"true", true},
                         {"False", false},
                         {"yes", true},
                         {"no", false},
                         {"off", false},
                         {"12", 12},
                         {"-7", -7},
                         {"0x1F", 31},
                         {"0o17", 15},
                         {"017", 15},
                         {"0b101", 5},
                         {"1.5", 1.5},
                         {"1e-4", 1e-4},
                         {".5", 0.5},
                         {"1.2.3", "1.2.3"},
                         {"2Gi", "2Gi"},
                         {"y", "y"},
                         {"-", "-"},
                         {".", "."},
                         {"e5", "e5"},
                         {"1e999", "1e999"},
                         {"inf", "inf"},
                         {"nan", "nan"},
                         {"0x", "0x"},
                         {"08", 8.0},
                         {"+-3", "+-3"},
                         {"0x-1", "0x-1"},
                         {"99999999999999999999", 1e20},
                         {"2026-01-31", "2026-01-31"}};
  for (const auto& entry : expected.items()) {
    EXPECT_EQ(resolve_plain_scalar(entry.key()), entry.value()) << entry.key();
  }
}

TEST(Document, RemembersTheLineOfEachField) {
  const Document document = read_yaml(
      "a: 1\n"
      "b:\n"
      "  - name: x\n"
      "    deep:\n"
      "      deeper: 3\n"
      "  - {name: y}\n"
      "\"c.d/e\": 4\n");
  ASSERT_TRUE(document.errors.empty());
  EXPECT_EQ(document.positions.line_of("a"), 1);
  EXPECT_EQ(document.positions.line_of("b"), 2);
  EXPECT_EQ(document.positions.line_of("b[0].name"), 3);
  EXPECT_EQ(document.positions.line_of("b[0].deep"), 4);
  EXPECT_EQ(document.positions.line_of("b[0].deep.deeper"), 5);
  EXPECT_EQ(document.positions.line_of("b[1].name"), 6);
  EXPECT_EQ(document.positions.line_of("[\"c.d/e\"]"), 7);
  // What was left out is looked for where it would have stood.
  EXPECT_EQ(document.positions.line_of("b[1].local"), 6);
  EXPECT_EQ(document.positions.line_of("nothing"), 0);
}

TEST(Document, ReadsJsonToo) {
  const Document document = read_yaml("{\"a\": [1, \"2\", null, true], \"b\": {}}");
  EXPECT_EQ(document.tree, json::parse(R"({"a": [1, "2", null, true], "b": {}})"));
}

TEST(Document, RefusesWhatIsNoSingleManifest) {
  EXPECT_EQ(refusal(""), "found nothing, expected a manifest");
  EXPECT_EQ(refusal("# only a remark\n---\n"), "found nothing, expected a manifest");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "line 3: found a second YAML document, expected one manifest a file");
  EXPECT_EQ(refusal(std::string(kMaxManifestBytes + 1, '#')),
            "found 1048577 bytes, expected a manifest of at most 1048576 bytes");
  EXPECT_EQ(refusal("a: 1\nb: \xff\n"),
            "line 2: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(refusal("a: 1\n# \xed\xa0\x80\n"),
            "line 2: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(refusal("a: \xc3"), "line 1: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(refusal(std::string("a: 1\nb: x\0y\n", 12)),
            "line 2: found a zero byte, expected text");
  EXPECT_EQ(refusal("a: 1\nb: 2\na: 3\n"),
            "line 3: a: found twice, first on line 1, expected once");
  EXPECT_EQ(refusal("a: &x {b: 1}\nc:\n  <<: *x\n"),
            "line 3: c: found the merge key <<, expected the fields written out");
  EXPECT_EQ(refusal("a:\n  ? [1, 2]\n  : 3\n"),
            "line 2: a: found a key that is no text, expected a field's name");
  EXPECT_TRUE(refusal("a: [1\n").starts_with("line 2: found what is not YAML: "));
  EXPECT_TRUE(refusal("a: {b: 1\n").find("found what is not YAML: ") != std::string::npos);
}

TEST(Document, RefusesNestingAndAliasesThatExplode) {
  EXPECT_EQ(refusal(std::string(70, '[') + std::string(70, ']')).find("line 1"), 0u);
  EXPECT_NE(refusal(std::string(100'000, '[')), "");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string alias = fmt::format("*a{}", i - 1);
    bomb += fmt::format("a{}: &a{} [{}]\n", i, i, fmt::join(std::vector(10, alias), ", "));
  }
  EXPECT_NE(refusal(bomb).find("found more than 100000 values"), std::string::npos)
      << refusal(bomb);
}

TEST(Document, AcceptsTextsOfAllPlanes) {
  const Document document = read_yaml("a: \"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"\n");
  ASSERT_TRUE(document.errors.empty());
  EXPECT_EQ(document.tree["a"], "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Yaml, ReadsBackWhatItWrote) {
  const json tree = {
      {"texts", {"plain", "no",          "true",    "12",     "1e3",   "",           "~",    "a: b",
                 "# x",   "line\nbreak", " blank ", "- dash", "tab\t", "\"quoted\"", "it's", "null",
                 "y",     "a #b",        "[x]",     "{y}",    "&z",    "*z",         "!t",   "%",
                 "@",     "`",           "x:",      "0x1F",   "é",     "a  b"}},
      {"numbers", {1, -2, 0.5, 1e-4, 1e300}},
      {"flags", {true, false, nullptr}},
      {"empty", {{"map", json::object()}, {"list", json::array()}}},
      {"a.b/c", {{{"x", {{"y", 1}}}}}}};
  const Document document = read_yaml(to_yaml(tree));
  ASSERT_TRUE(document.errors.empty()) << document.errors.front().sentence() << to_yaml(tree);
  EXPECT_EQ(document.tree, tree);
}

}  // namespace
}  // namespace tilewright::api
