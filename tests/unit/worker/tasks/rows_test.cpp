#include "worker/tasks/rows/rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/paths.h"
#include "tests/unit/worker/tasks/builders.h"
#include "worker/columnar/parquet.h"
#include "worker/runtime/available_memory.h"
#include "worker/tasks/rows/tables.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Table = std::vector<std::vector<std::string>>;

struct ReadRows {
  std::vector<std::string> columns;
  Table rows;  // a missing value as "<missing>"
  std::vector<std::string> locations;
};

ReadRows read_rows(const std::string& file, const std::string& content) {
  const DataFolder folder;
  folder.write(file, content);
  const std::string path = (folder.path() / file).string();
  const auto source = open_rows(path);
  EXPECT_EQ(source->name(), path);
  ReadRows read;
  read.columns = source->columns();
  while (source->next()) {
    std::vector<std::string> row;
    for (std::size_t i = 0; i < read.columns.size(); ++i) {
      const Value value = source->value(i);
      row.emplace_back(value.kind == ValueKind::kMissing ? "<missing>" : value.text);
    }
    read.rows.push_back(std::move(row));
    read.locations.push_back(source->location().substr(folder.path().string().size() + 1));
  }
  return read;
}

// The message without the directory.
std::string refusal(const std::string& file, const std::string& content) {
  const DataFolder folder;
  folder.write(file, content);
  try {
    const auto source = open_rows((folder.path() / file).string());
    while (source->next()) {
    }
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    const std::string directory = folder.path().string() + "/";
    const std::string message = failure.what();
    EXPECT_EQ(message.rfind(directory, 0), 0U) << message;
    return message.substr(directory.size());
  }
  return "no failure";
}

TEST(CsvRows, FieldsMayBeQuoted) {
  const ReadRows read = read_rows(
      "a.csv", "text,label\n\"a, b\",1\n\"he said \"\"no\"\"\",0\n\"\",2\nplain \"word\",3\n");
  EXPECT_THAT(read.columns, ElementsAre("text", "label"));
  EXPECT_EQ(read.rows,
            (Table{{"a, b", "1"}, {"he said \"no\"", "0"}, {"", "2"}, {"plain \"word\"", "3"}}));
  EXPECT_THAT(read.locations, ElementsAre("a.csv:2", "a.csv:3", "a.csv:4", "a.csv:5"));
}

TEST(CsvRows, QuotedFieldsMayHaveLineEnds) {
  const ReadRows read =
      read_rows("a.csv", "\xEF\xBB\xBFtext,label\r\n\"a\r\nb\",1\r\n\r\n\"c\n\nd\",0\r\ne,2");
  EXPECT_EQ(read.rows, (Table{{"a\r\nb", "1"}, {"c\n\nd", "0"}, {"e", "2"}}));
  EXPECT_THAT(read.locations, ElementsAre("a.csv:2", "a.csv:5", "a.csv:8"));
}

TEST(CsvRows, BrokenQuotesAreRefused) {
  EXPECT_EQ(refusal("a.csv", "text,label\na,1\n\"b,0\nc,1\n"),
            "a.csv:3: the quote that opens in line 3 is not closed before the end of the file");
  EXPECT_EQ(refusal("a.csv", "text,label\n\"a\" b,1\n"),
            "a.csv:2: found \" \" after a closing quote in line 2, expected a comma or the end of "
            "the line; a quote within a quoted field is written twice");
  EXPECT_EQ(refusal("a.csv", "text,label\n\"a\n\"b,1\n"),
            "a.csv:2: found \"b\" after a closing quote in line 3, expected a comma or the end of "
            "the line; a quote within a quoted field is written twice");
  EXPECT_EQ(refusal("a.csv", "text,label\na,\""),
            "a.csv:2: the quote that opens in line 2 is not closed before the end of the file");
}

TEST(CsvRows, AWrongNumberOfFieldsIsRefused) {
  EXPECT_EQ(refusal("a.csv", "text,label\na,1\nb\n"),
            "a.csv:3: the row has 1 comma-separated field, expected 2");
  EXPECT_EQ(refusal("a.csv", "text,label\na,b,1\n"),
            "a.csv:2: the row has 3 comma-separated fields, expected 2");
}

TEST(CsvRows, TwoColumnsOfOneNameAreRefused) {
  EXPECT_EQ(refusal("a.csv", "text,text\na,1\n"),
            "a.csv: two columns are named \"text\", expected different names");
  EXPECT_EQ(read_rows("a.csv", ",,label\n0,0,1\n").columns.size(), 3U)
      << "pandas writes an index without a name";
}

TEST(TsvRows, QuotesArePlainCharacters) {
  const ReadRows read = read_rows("a.tsv", "text\tlabel\n\"a\t1\nb\"\"\t0\n");
  EXPECT_EQ(read.rows, (Table{{"\"a", "1"}, {"b\"\"", "0"}}));
}

TEST(JsonRows, AreLinesAListOrADataMember) {
  const Table expected = {{"a", "1"}, {"b", "<missing>"}, {"<missing>", "2.5"}};
  const std::string a = "{\"text\": \"a\", \"label\": 1}";
  const std::string b = "{\"text\": \"b\"}";
  const std::string c = "{\"label\": 2.5, \"text\": null}";
  for (const std::string& content :
       {fmt::format("{}\n{}\n\n{}\n", a, b, c), fmt::format("\xEF\xBB\xBF{}\r\n{}\r\n{}", a, b, c),
        fmt::format("[{},\n{}, {}]\n", a, b, c), fmt::format("{{\"data\": [{},{},{}]}}", a, b, c),
        fmt::format("{{\"version\": {{\"data\": [1]}}, \"data\": [{},{},{}], \"more\": "
                    "[{{\"x\": 1}}]}}\n",
                    a, b, c)}) {
    const ReadRows read = read_rows("a.json", content);
    EXPECT_THAT(read.columns, ElementsAre("text", "label")) << content;
    EXPECT_EQ(read.rows, expected) << content;
  }
}

TEST(JsonRows, PlacesAreTheLinesOfTheObjects) {
  EXPECT_THAT(read_rows("a.jsonl", "{\"t\": 1}\n\n{\"t\": 2}\n").locations,
              ElementsAre("a.jsonl:1", "a.jsonl:3"));
  EXPECT_THAT(read_rows("a.json", "[\n  {\n\"t\": 1\n},\n{\"t\": 2}]").locations,
              ElementsAre("a.json:2", "a.json:5"));
}

TEST(JsonRows, ValuesKeepTheirTypes) {
  const DataFolder folder;
  folder.write("a.json",
               "{\"a\": \"1\", \"b\": -1, \"c\": 1.5, \"d\": true, \"e\": [1, {\"x\": 2}], "
               "\"f\": {\"g\": [3]}, \"h\": \"\\u00e9\\ud83d\\ude00\"}");
  const auto rows = open_rows((folder.path() / "a.json").string());
  ASSERT_TRUE(rows->next());
  const std::vector<std::pair<ValueKind, std::string>> expected = {
      {ValueKind::kString, "1"},
      {ValueKind::kInteger, "-1"},
      {ValueKind::kReal, "1.5"},
      {ValueKind::kBoolean, "True"},
      {ValueKind::kOther, "a list"},
      {ValueKind::kOther, "an object"},
      {ValueKind::kString, "\xC3\xA9\xF0\x9F\x98\x80"}};
  ASSERT_EQ(rows->columns().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rows->value(i).kind, expected[i].first) << i;
    EXPECT_EQ(rows->value(i).text, expected[i].second) << i;
  }
}

TEST(JsonRows, MembersMayBeInAnyOrder) {
  const ReadRows read = read_rows("rows.jsonl", R"({"a": 1, "b": 2, "c": 3}
{"c": 6, "a": 4}
{"b": 8})");
  EXPECT_EQ(read.rows,
            (Table{{"1", "2", "3"}, {"4", "<missing>", "6"}, {"<missing>", "8", "<missing>"}}));
}

// One object with many members, and many objects with the last of them only.
TEST(JsonRows, TakeMemoryForTheMembersThatAnObjectHas) {
  std::string content = "{";
  for (std::size_t i = 0; i < kMaxColumns; ++i) {
    content += fmt::format("{}\"m{}\": 0", i == 0 ? "" : ", ", i);
  }
  content += "}\n";
  for (int i = 0; i < 2000; ++i) content += fmt::format("{{\"m{}\": 1}}\n", kMaxColumns - 1);
  const DataFolder folder;
  folder.write("rows.jsonl", content);
  const std::uint64_t before = runtime::anonymous_rss();
  const auto rows = open_rows(folder.path() / "rows.jsonl");
  EXPECT_LT(runtime::anonymous_rss(), before + (std::uint64_t{32} << 20));
  ASSERT_TRUE(rows->next() && rows->next());
  EXPECT_EQ(rows->value(kMaxColumns - 1).text, "1");
}

TEST(JsonRows, BrokenJsonIsRefused) {
  EXPECT_EQ(refusal("a.json", "[{\"t\": \"a\"},\n{\"t\": \"b"),
            "a.json:2: the file ends within a JSON value, expected its end");
  EXPECT_EQ(refusal("a.jsonl", "{\"t\": \"a\"}\n{\"t\": \"b\"\n"),
            "a.jsonl:2: the file ends within a JSON value, expected its end");
  // The parser reads the line feed to find the end of the token.
  EXPECT_THAT(refusal("a.json", "[\n{\"t\": tru\n}\n]"), StartsWith("a.json:2: found \""));
  EXPECT_THAT(refusal("a.json", "[\n{\"t\": 1}, 7\n]"), StartsWith("a.json:2: found a number,"));
  EXPECT_THAT(refusal("a.jsonl", "{\"t\": \"a\"}\n{\"t\": x}\n"), HasSubstr("a.jsonl:2: found \""));
  EXPECT_THAT(refusal("a.jsonl", "{\"t\": x}\n"),
              EndsWith("\", which is not valid JSON (invalid literal)"));
  EXPECT_THAT(
      refusal("a.json", "{\"t\": \"\\ud800\"}\n"),
      EndsWith(", which is not valid JSON (invalid string: surrogate U+D800..U+DBFF must be "
               "followed by U+DC00..U+DFFF)"));
  EXPECT_THAT(refusal("a.jsonl", "{\"t\": 1}\n{\"t\": 2,}\n"),
              AllOf(StartsWith("a.jsonl:2: found \""),
                    EndsWith(", which is not valid JSON (unexpected '}'; expected string "
                             "literal)")));
  EXPECT_EQ(refusal("a.json", "{\"t\": 1e999}\n"),
            "a.json:1: found \"1e999\", which is out of a double's range");
  EXPECT_EQ(refusal("a.jsonl", std::string("{\"t\": 1}\n\0\0", 11)),
            "a.jsonl:2: found a NUL byte, expected a row or the end of the file");
  EXPECT_EQ(refusal("a.json", "[1]"),
            "a.json:1: found a number, expected an object with the members of a row");
  EXPECT_EQ(refusal("a.json", "\"a\""),
            "a.json:1: found a string, expected an object with the members of a row");
  EXPECT_EQ(refusal("a.json", "[[{}]]"),
            "a.json:1: found a list in the list of rows, expected an object");
  EXPECT_EQ(refusal("a.json", "[{\"t\": 1}]\n{\"t\": 2}"),
            "a.json:2: found an object after the rows, expected the end of the file");
  EXPECT_EQ(refusal("a.json", "{\"t\": 1, \"t\": 2}"),
            "a.json:1: the object has two members \"t\"");
  EXPECT_EQ(refusal("a.json", R"({"data": [{"t": 1}], "data": [{"t": 2}]})"),
            "a.json:1: the object has two members \"data\"");
  EXPECT_EQ(refusal("a.json", "{\"t\": " + std::string(100, '[')),
            "a.json:1: the JSON nests deeper than 64 levels");
}

TEST(TableRows, AListHasADescriptionForMessages) {
  const auto file = testing::source_dir() / "tests/golden/columnar/data/squad_datasets.parquet";
  std::vector<columnar::Table> tables;
  tables.push_back(columnar::read_parquet(file, {}));
  const auto rows = rows_of(std::move(tables));
  const std::size_t column = rows->column("answers.text");
  ASSERT_TRUE(rows->next());
  EXPECT_EQ(rows->value(column).kind, ValueKind::kOther);
  EXPECT_EQ(rows->value(column).text, "a list");
}

TEST(ListNames, ShortensNamesAndTheirList) {
  std::vector<std::string> names = {std::string(101, 'a'), "b\n"};
  EXPECT_EQ(list_names(names, "or"), "\"" + std::string(100, 'a') + "...\", \"b\\n\"");
  names.resize(22, "c");
  EXPECT_THAT(list_names(names, "or"), EndsWith("\"c\" or 2 others"));
}

TEST(Rows, AMissingColumnIsNamedWithShortAndPrintableNames) {
  using namespace std::string_literals;
  const DataFolder folder;
  folder.write("a.csv", "a\0b,"s + std::string(100'000, 'c') + ",d\n1,2,3\n");
  const auto rows = open_rows((folder.path() / "a.csv").string());
  try {
    rows->column("wanted", "; advice");
    ADD_FAILURE() << "was found";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(),
                EndsWith("a.csv: the column \"wanted\" is missing, found \"a\\x00b\", \"" +
                         std::string(100, 'c') + "...\", \"d\"; advice"));
  }
  EXPECT_THAT(refusal("b.csv", "a,b\n\"x\"\0,1\n"s),
              StartsWith("b.csv:2: found \"\\x00\" after a closing quote in line 2, expected "));
}

TEST(Rows, PipesAreRefused) {
  const DataFolder folder;
  for (const char* file : {"a.csv", "a.tsv", "a.jsonl"}) {
    const std::string path = folder.path() / file;
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    try {
      open_rows(path);
      ADD_FAILURE() << file << " was read";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kData);
      EXPECT_THAT(failure.what(), StartsWith(path + ": is a pipe, expected a regular file"));
    }
  }
}

TEST(Rows, FilesWithoutRowsInvalidUtf8AndLongRowsAreRefused) {
  for (const char* file : {"a.csv", "a.tsv", "a.json"}) {
    EXPECT_EQ(refusal(file, ""), std::string(file) + ": has no rows, expected at least one");
    EXPECT_EQ(refusal(file, "ab\n\xED\xA0\x80\n"),
              std::string(file) +
                  ":2: byte 1 of the line (byte 4 of the file) is not valid UTF-8, "
                  "expected text in UTF-8");
  }
  const std::string large(10 << 20, 'a');
  EXPECT_EQ(refusal("a.csv", "t,label\n" + large + ",1\n"),
            "a.csv:2: the row has 10485760 bytes, expected at most 1048576");
  EXPECT_EQ(refusal("a.csv", "t,label\n\"" + large + "\",1\n"),
            "a.csv:2: the row has 10485761 bytes, expected at most 1048576");
  EXPECT_EQ(refusal("a.tsv", "t\tlabel\n" + large + "\t1\n"),
            "a.tsv:2: the line has 10485762 bytes, expected at most 1048576");
  EXPECT_EQ(refusal("a.json", "{\"t\": \"b\"}\n{\"t\": \"" + large + "\"}\n"),
            "a.json:2: a string has 10485760 bytes, expected at most 1048576");
}

// Reads all values; false if the file is refused as the user's data.
bool reads(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  try {
    const auto source = open_rows(path);
    while (source->next()) {
      for (std::size_t i = 0; i < source->columns().size(); ++i) {
        const Value value = source->value(i);
        EXPECT_FALSE(text::find_invalid_utf8(value.text).has_value()) << content;
      }
      EXPECT_THAT(source->location(), HasSubstr(path + ":"));
    }
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData) << content;
    EXPECT_THAT(failure.what(), HasSubstr(path));
    return false;
  }
  return true;
}

TEST(Rows, EveryTruncationAndEveryChangedByteIsReadOrRefused) {
  const DataFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.csv", "t,label\n\"a\n\"\"b\"\"\",1\r\n\xC3\xA9,2\n"},
      {"a.tsv", "t\tlabel\n\"a\t1\r\n\xC3\xA9\t2\n"},
      {"a.json", "{\"v\": [1], \"data\": [{\"t\": \"\\u00e9\", \"label\": [1, {\"x\": 2}]}, {}]}"},
      {"a.jsonl", "{\"t\": \"\xC3\xA9\", \"label\": -1.5e1}\n{\"t\": null, \"x\": true}\n"}};
  for (const auto& [name, content] : files) {
    const std::string path = (folder.path() / name).string();
    EXPECT_TRUE(reads(path, content)) << name;
    for (std::size_t i = 0; i < content.size(); ++i) {
      reads(path, content.substr(0, i));
      for (const char byte : std::string("\0\"\\,:[]{}\n\r\t1\xFF", 14)) {
        std::string changed = content;
        changed[i] = byte;
        reads(path, changed);
      }
    }
  }
}

TEST(Rows, UnknownSuffixesAndMissingFilesAreRefused) {
  EXPECT_EQ(refusal("a.txt", "a"),
            "a.txt: expected a file that ends in .csv, .tsv, .json or .jsonl");
  EXPECT_THROW(open_rows("/nowhere/a.csv"), Failure);
}

}  // namespace
}  // namespace tilewright::tasks
