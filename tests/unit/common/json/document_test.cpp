#include "common/json/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <limits>

#include "common/json/scalar.h"
#include "common/json/yaml.h"

namespace tilewright {
namespace {

using nlohmann::json;

std::string error_of(std::string_view text) {
  const Document document = read_yaml(text);
  return document.errors.empty() ? "" : document.errors.front().sentence();
}

// From `kubectl label --local -o json` 1.34, which reads a manifest as `kubectl create` does.
TEST(Document, TypesPlainScalarsAsKubectlDoes) {
  const json expected = {{"", nullptr},
                         {"~", nullptr},
                         {"null", nullptr},
                         {"nUll", "nUll"},
                         {"true", true},
                         {"tRUE", "tRUE"},
                         {"False", false},
                         {"yes", true},
                         {"yEs", "yEs"},
                         {"no", false},
                         {"off", false},
                         {"y", true},
                         {"Y", true},
                         {"n", false},
                         {"N", false},
                         {"12", 12},
                         {"-7", -7},
                         {"-0", 0},
                         {"0x1F", 31},
                         {"0X1F", 31},
                         {"-0x1F", -31},
                         {"0o17", 15},
                         {"+0O17", 15},
                         {"017", 15},
                         {"-017", -15},
                         {"0b101", 5},
                         {"0B1", 1},
                         {"-0b11", -3},
                         {"0xG", "0xG"},
                         {"0o18", "0o18"},
                         {"0b12", "0b12"},
                         {"08", 8},
                         {"-08", -8},
                         {"0778", 778},
                         {"1_000", 1000},
                         {"1_", 1},
                         {"_1", "_1"},
                         {"0x_1", 1},
                         {"0_7", 7},
                         {"0_8", 8},
                         {"1_0.5", 10.5},
                         {"1e1_0", 10000000000},
                         {"1,000", "1,000"},
                         {"1.5", 1.5},
                         {"1e-4", 1e-4},
                         {".5", 0.5},
                         {"-.5", -0.5},
                         {"+.5e3", 500},
                         {"._5", "._5"},
                         {"128.0", 128},
                         {"-0.0", 0},
                         {"1e3", 1000},
                         {"1E+3", 1000},
                         {"5.", 5},
                         {"5.e1", 50},
                         {"1.5e3", 1500},
                         {"1e18", 1000000000000000000},
                         {"1e19", 1e19},
                         {"1e21", 1e21},
                         {"9223372036854775807", 9223372036854775807},
                         {"9223372036854775808", 9223372036854775808.0},
                         {"-9223372036854775808", std::numeric_limits<std::int64_t>::min()},
                         {"-9223372036854775809", -9223372036854775808.0},
                         {"-0x8000000000000000", std::numeric_limits<std::int64_t>::min()},
                         {"0xFFFFFFFFFFFFFFFF", 18446744073709551615.0},
                         {"99999999999999999999", 1e20},
                         {"1.2.3", "1.2.3"},
                         {"1e3.5", "1e3.5"},
                         {"1e400", "1e400"},
                         {"1e", "1e"},
                         {"1e+", "1e+"},
                         {"2Gi", "2Gi"},
                         {"-", "-"},
                         {".", "."},
                         {"e5", "e5"},
                         {"inf", "inf"},
                         {"nan", "nan"},
                         {"0x", "0x"},
                         {"0x1p3", "0x1p3"},
                         {"1:30", "1:30"},
                         {"+-3", "+-3"},
                         {"0x-1", "0x-1"},
                         {"2026-01-31", "2026-01-31"}};
  for (const auto& [text, value] : expected.items()) {
    const json found = resolve_plain_scalar(text);
    EXPECT_EQ(found, value) << text;
    EXPECT_EQ(found.is_number_float(), value.is_number_float()) << text;
  }
}

TEST(Document, KeepsTheLineOfEachField) {
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
  // A missing field has the line of its parent.
  EXPECT_EQ(document.positions.line_of("b[1].local"), 6);
  EXPECT_EQ(document.positions.line_of("nothing"), 0);
}

TEST(Document, ReadsJson) {
  const Document document = read_yaml("{\"a\": [1, \"2\", null, true], \"b\": {}}");
  EXPECT_EQ(document.tree, json::parse(R"({"a": [1, "2", null, true], "b": {}})"));
}

// JSON escapes a character above U+FFFF as a pair of surrogates, as json.dumps() of Python does.
TEST(Document, ReadsSurrogatePairsOfJson) {
  const Document document =
      read_yaml(R"({"a": "\ud83d\ude00 \\ud83d\\ude00", "\uD83D\uDE00": ["\u00e9"]})");
  ASSERT_TRUE(document.errors.empty()) << document.errors.front().sentence();
  EXPECT_EQ(document.tree, json::parse(R"({"a": "😀 \\ud83d\\ude00", "😀": ["é"]})"));
  // Neither is YAML, nor JSON.
  EXPECT_NE(error_of(R"(a: "\ud83d\ude00")"), "");
  EXPECT_NE(error_of(R"({"a": "\ud83d"})"), "");
  EXPECT_EQ(read_yaml(R"({a: '\ud83d\ude00'})").tree["a"], R"(\ud83d\ude00)");
}

TEST(Document, ReadsSeveralDocuments) {
  const std::vector<Document> documents =
      read_yaml_documents("---\na: 1\n---\n# nothing\n---\nb:\n  c: 2\n---\n");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].tree, json({{"a", 1}}));
  EXPECT_EQ(documents[0].positions.line_of("a"), 2);
  EXPECT_EQ(documents[0].positions.line_of("missing"), 0);
  EXPECT_EQ(documents[1].tree, json({{"b", {{"c", 2}}}}));
  EXPECT_EQ(documents[1].positions.line_of("b.c"), 7);
  EXPECT_EQ(documents[1].positions.line_of("missing"), 6);
}

TEST(Document, ReportsAnErrorInAnyOfSeveralDocuments) {
  const auto error_in = [](const std::string& text) {
    const std::vector<Document> documents = read_yaml_documents(text);
    EXPECT_EQ(documents.size(), 1u);
    return documents[0].errors.empty() ? "" : documents[0].errors[0].sentence();
  };
  EXPECT_EQ(error_in("a: 1\n---\nb: 2\nb: 3\n"),
            "line 4: b: found twice, first on line 3, expected once");
  EXPECT_EQ(error_in("---\n---\n"), "found nothing, expected a manifest");
  std::string many;
  for (std::size_t i = 0; i <= kMaxDocuments; ++i) many += "---\na: 1\n";
  EXPECT_EQ(error_in(many), "line 202: found more than 100 YAML documents");
}

TEST(Document, RejectsAnythingButOneManifest) {
  EXPECT_EQ(error_of(""), "found nothing, expected a manifest");
  EXPECT_EQ(error_of("# only a remark\n---\n"), "found nothing, expected a manifest");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"),
            "line 3: found a second YAML document, expected one manifest per file");
  EXPECT_EQ(error_of(std::string(kMaxManifestBytes + 1, '#')),
            "found 1048577 bytes, expected a manifest of at most 1048576 bytes");
  EXPECT_EQ(error_of("a: 1\nb: \xff\n"),
            "line 2: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(error_of("a: 1\n# \xed\xa0\x80\n"),
            "line 2: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(error_of("a: \xc3"), "line 1: found bytes that are not UTF-8, expected UTF-8 text");
  EXPECT_EQ(error_of(std::string("a: 1\nb: x\0y\n", 12)),
            "line 2: found a zero byte, expected UTF-8 text");
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"),
            "line 3: a: found twice, first on line 1, expected once");
  EXPECT_EQ(error_of("a: &x {b: 1}\nc:\n  <<: *x\n"),
            "line 3: c: found the merge key <<, expected the fields written out");
  EXPECT_EQ(error_of("a:\n  ? [1, 2]\n  : 3\n"),
            "line 2: a: found a key that is not a string, expected the name of a field");
  EXPECT_TRUE(error_of("a: [1\n").starts_with("line 2: found invalid YAML: "));
  EXPECT_TRUE(error_of("a: {b: 1\n").find("found invalid YAML: ") != std::string::npos);
}

TEST(Document, NamesAWrongIndentation) {
  const std::string tab = "found invalid YAML: indented with a tab, expected spaces";
  EXPECT_EQ(error_of("a:\n\tb: 1\n"), "line 2: " + tab);
  EXPECT_EQ(error_of("a:\n  b: 1\n\tc: 2\n"), "line 3: " + tab);
  EXPECT_EQ(error_of("a:\n  b: 1\n  \tc: 2\n"), "line 3: " + tab);
  EXPECT_EQ(error_of("a:\n  - b\n\t- c\n"), "line 3: " + tab);
  EXPECT_EQ(error_of("{\n\t\"a\": 1,\n\t\"b\": [\n\t\t2\n\t]\n}\n"), "");
  EXPECT_EQ(error_of("a:\n\t- b\n"), "line 2: " + tab);
  EXPECT_EQ(error_of("a:\n\t? b\n"), "line 2: " + tab);
  EXPECT_EQ(error_of("a: |\n\tb\n"), "line 2: " + tab);
  EXPECT_EQ(error_of("{\n\t\"a\": [1\n").find("tab"), std::string::npos);
  const std::string escape = "line 2: found invalid YAML: unknown escape character: q";
  EXPECT_EQ(error_of("{\n\t\"a\": \"\\q\"\n}\n"), escape);
  EXPECT_EQ(error_of("a: \"b\n\t\\q\"\n"), escape);
  EXPECT_EQ(error_of("a: \"b\n\tc\" d: e\n").find("tab"), std::string::npos);
  const std::string hint = "; check the indentation of this line";
  EXPECT_EQ(error_of("a:\n    b: 1\n  c: 2\n"),
            "line 3: found invalid YAML: end of map not found" + hint);
  EXPECT_EQ(error_of("a:\n  - b: 1\n   c: 2\n"),
            "line 3: found invalid YAML: end of sequence not found" + hint);
  EXPECT_EQ(error_of("a: 1\n  b: 2\n"), "line 2: found invalid YAML: illegal map value" + hint);
}

TEST(Document, FindsTheLinesOfUnusualNames) {
  const Document document = read_yaml(
      "\"a\\\"]b\":\n"
      "  \"\": 1\n"
      "  x:\n"
      "    -\n"
      "    - y\n"
      "0:\n"
      "  z: 1\n");
  ASSERT_TRUE(document.errors.empty());
  const std::string odd = member_path("", "a\"]b");
  EXPECT_EQ(document.positions.line_of(odd), 1);
  EXPECT_EQ(document.positions.line_of(member_path(odd, "")), 2);
  EXPECT_EQ(document.positions.line_of(odd + ".x[0]"), 3) << "an empty item has no line";
  EXPECT_EQ(document.positions.line_of(odd + ".x[1]"), 5);
  EXPECT_EQ(document.positions.line_of(odd + ".x[2]"), 3);
  EXPECT_EQ(document.positions.line_of("0.z"), 7);
  for (const char* path : {"[", "[0", "[\"", "[99999999999999999999]", ".", "..", "0..z", "0["}) {
    EXPECT_LE(document.positions.line_of(path), 7) << path;
  }
}

TEST(Document, ExpandsAliases) {
  const Document document = read_yaml(
      "a: &a {x: 1, y: &y [p, q]}\n"
      "b: *a\n"
      "c:\n"
      "  - *y\n"
      "d: *y\n");
  ASSERT_TRUE(document.errors.empty()) << document.errors.front().sentence();
  const json a = {{"x", 1}, {"y", {"p", "q"}}};
  const json& y = a["y"];
  EXPECT_EQ(document.tree, json({{"a", a}, {"b", a}, {"c", json::array({y})}, {"d", y}}));
  EXPECT_EQ(document.positions.line_of("b"), 2);
  EXPECT_EQ(document.positions.line_of("b.y"), 1);
  EXPECT_EQ(document.positions.line_of("c[0]"), 4);
  EXPECT_EQ(read_yaml("&k a: 1\nb: *k\n").tree, json({{"a", 1}, {"b", "a"}}));
  EXPECT_EQ(error_of("a: &a\n  - *a\n"),
            "line 2: a[0]: found an alias inside the value that it stands for");
  EXPECT_NE(error_of("a: *b\n").find("found invalid YAML: "), std::string::npos);
}

TEST(Document, RejectsDeepNesting) {
  EXPECT_EQ(error_of(std::string(70, '[') + std::string(70, ']')).find("line 1"), 0u);
  for (const char* opening : {"[", "{a: ", "- ", "? "}) {
    std::string text;
    while (text.size() < 300'000) text += opening;
    EXPECT_NE(error_of(text), "") << opening;
  }
  EXPECT_EQ(error_of(std::string(65, '[') + std::string(65, ']')), "");
  const std::string inner = std::string(40, '[') + std::string(40, ']');
  EXPECT_NE(
      error_of("a: &a " + inner + "\nb: " + std::string(40, '[') + "*a" + std::string(40, ']'))
          .find("found more than 64 levels of nesting"),
      std::string::npos);
}

// Each alias stands for ten of the aliases before it.
std::string alias_bomb(const std::string& scalar, int levels) {
  std::string bomb = fmt::format("a0: &a0 [{}]\n", fmt::join(std::vector(10, scalar), ", "));
  for (int i = 1; i < levels; ++i) {
    const std::string alias = fmt::format("*a{}", i - 1);
    bomb += fmt::format("a{}: &a{} [{}]\n", i, i, fmt::join(std::vector(10, alias), ", "));
  }
  return bomb;
}

TEST(Document, RejectsAliasBombs) {
  EXPECT_EQ(error_of(alias_bomb("x", 4)), "");
  EXPECT_NE(error_of(alias_bomb("x", 9)).find("found more than 100000 values"), std::string::npos);
  EXPECT_NE(error_of(alias_bomb(std::string(5000, 'x'), 3)).find("found more than 1048576 bytes"),
            std::string::npos);
  std::string copies = "a: &a " + std::string(500'000, 'x') + "\nb:\n";
  for (int i = 0; i < 50'000; ++i) copies += "- *a\n";
  EXPECT_EQ(error_of(copies), "line 3: b[0]: found more than 1048576 bytes of text");
}

// The name of a field is part of the path of every value below it.
TEST(Document, RejectsLongPaths) {
  std::string values = "[0";
  for (int i = 0; i < 90'000; ++i) values += ",0";
  values += "]";
  EXPECT_EQ(error_of("spec: {? " + std::string(600'000, 'k') + "\n  : " + values + "}\n"),
            "line 1: spec: found field names of 600004 bytes in one path, expected at most 1024");
  std::string text = values;
  for (int i = 0; i < 60; ++i) text = fmt::format("{{{}: {}}}", std::string(30, 'k'), text);
  EXPECT_NE(error_of(text).find("found field names of 1050 bytes in one path"), std::string::npos);
}

// glibc counts 0 bytes under a sanitizer.
TEST(Document, NeedsLittleMemoryWithinTheLimits) {
  std::string values = "[0";
  for (int i = 0; i < 99'900; ++i) values += ",0";
  values += "]";
  const std::string text = "{" + std::string(1000, 'k') + ": " + values + "}";
  const std::size_t before = mallinfo2().uordblks;
  const Document document = read_yaml(text);
  ASSERT_TRUE(document.errors.empty()) << document.errors.front().sentence();
  EXPECT_LT(mallinfo2().uordblks - before, std::size_t{32} << 20);
}

TEST(TreeLimits, BoundATreeFromElsewhere) {
  const auto exceeded = [](const json& tree) {
    return TreeLimits().add_tree(tree, 0, 0).value_or("");
  };
  json deep = 1;
  for (int i = 0; i < 64; ++i) deep = json::array({deep});
  EXPECT_EQ(exceeded(deep), "");
  EXPECT_EQ(exceeded(json::array({deep})), "found more than 64 levels of nesting");
  EXPECT_EQ(exceeded(std::vector(99'999, 0)), "");
  EXPECT_EQ(exceeded(std::vector(100'000, 0)), "found more than 100000 values");
  EXPECT_EQ(exceeded({{std::string(1024, 'k'), std::string(kMaxManifestBytes - 1024, 'x')}}), "");
  EXPECT_EQ(exceeded({{std::string(1024, 'k'), std::string(kMaxManifestBytes - 1023, 'x')}}),
            "found more than 1048576 bytes of text");
  EXPECT_EQ(exceeded({{"a", {{std::string(1024, 'k'), 1}}}}),
            "found field names of 1025 bytes in one path, expected at most 1024");
}

TEST(FieldErrors, AreBounded) {
  std::vector<FieldError> errors;
  for (int i = 0; i < 1000; ++i) add_error(errors, {"a", i + 1, "found b"});
  ASSERT_EQ(errors.size(), 101u);
  EXPECT_TRUE(sentences(errors).starts_with(
      "found more than 100 errors; these are some\nline 1: a: found b\nline 2: a: found b\n"));
}

// Without a bound, the parser reports empty documents at such a character without end.
TEST(Document, EndsAtACharacterThatBeginsNoValue) {
  for (const char* text : {",", "\"h\", c", "&h, c", "---\n,", "a: 1\n---\n,"}) {
    const Document document = read_yaml(text);
    ASSERT_EQ(document.errors.size(), 1u) << text;
    EXPECT_TRUE(document.errors.front().message.starts_with("found ")) << text;
  }
  for (const char* text : {"a: 1\n---\n", "---\na: 1\n", "a: 1\n...\n"}) {
    EXPECT_TRUE(read_yaml(text).errors.empty()) << text;
  }
}

TEST(Document, AcceptsEveryUnicodePlane) {
  const Document document = read_yaml("a: \"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"\n");
  ASSERT_TRUE(document.errors.empty());
  EXPECT_EQ(document.tree["a"], "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Yaml, RoundTrips) {
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
}  // namespace tilewright
