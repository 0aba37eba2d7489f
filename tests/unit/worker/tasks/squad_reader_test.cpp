#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/worker/tasks/squad_builders.h"

namespace tilewright::tasks::squad {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kFile =
    one_paragraph("a b a", question("q1", "x", answer("b", 2)) + "," + question("q2", "a?", "[]"));

TEST(SquadReader, ReadsThePublishedLayout) {
  const Examples examples = read_text(kFile);
  ASSERT_EQ(examples.contexts.size(), 1U);
  EXPECT_EQ(examples.contexts[0], "a b a");
  ASSERT_EQ(examples.questions.size(), 2U);
  EXPECT_EQ(examples.questions[0].id, "q1");
  EXPECT_EQ(examples.questions[0].text, "x");
  ASSERT_EQ(examples.questions[0].answers.size(), 1U);
  EXPECT_EQ(examples.questions[0].answers[0].text, "b");
  EXPECT_EQ(examples.questions[0].answers[0].start, 2);
  EXPECT_TRUE(examples.questions[1].answers.empty());
}

TEST(SquadReader, IgnoresOtherMembersPlausibleAnswersAndAByteOrderMark) {
  const Examples examples =
      read_text("\xEF\xBB\xBF" +
                one_paragraph("a b",
                              R"({"question": "x", "id": "q", "answers": [], "is_impossible": true,
                        "plausible_answers": [{"text": "zzz", "answer_start": 99}],
                        "extra": {"deep": [[{"paragraphs": [{}]}]]}})"));
  ASSERT_EQ(examples.questions.size(), 1U);
  EXPECT_TRUE(examples.questions[0].answers.empty());
}

TEST(SquadReader, ReadsRowsInEveryLayoutAndStoresEqualContextsOnce) {
  const std::string rows[] = {
      R"({"id": "q1", "title": "T", "context": "a b", "question": "x",
          "answers": {"text": ["b", "a"], "answer_start": [2, 0]}})",
      R"({"id": 7, "context": "a b", "question": "y", "answers": {"text": [], "answer_start": []}})",
      R"({"id": "q3", "context": "c", "question": "z"})"};
  std::string lines;
  for (std::string row : rows) {
    std::erase(row, '\n');
    lines += row + "\r\n\n";
  }
  const std::string list = rows[0] + "," + rows[1] + "," + rows[2];
  const std::pair<std::string, std::string> files[] = {
      {"data.json", R"({"version": {"a": 1}, "data": [)" + list + "]}"},
      {"list.json", "[" + list + "]"},
      {"lines.json", lines},
      {"lines.jsonl", lines}};
  for (const auto& [name, content] : files) {
    const Examples examples = read_text(content, name);
    ASSERT_EQ(examples.questions.size(), 3U) << name;
    EXPECT_EQ(examples.contexts, (std::vector<std::string>{"a b", "c"})) << name;
    EXPECT_EQ(examples.questions[0].answers[1].start, 0) << name;
    EXPECT_EQ(examples.questions[1].id, "7") << name;
    EXPECT_EQ(examples.questions[2].context, 1U) << name;
  }
  EXPECT_EQ(read_text(rows[2], "row.json").questions.size(), 1U);
}

TEST(SquadReader, StopsAfterTheRequestedQuestions) {
  EXPECT_EQ(read_text(kFile, "dev.json", 1).questions.size(), 1U);
}

TEST(SquadReader, CountsOffsetsInCodePoints) {
  // U+1F600 is 1 code point, 2 UTF-16 units and 4 bytes.
  const auto with_start = [](int start) {
    return one_paragraph("é\U0001F600 naïve b", question("q", "x", answer("b", start)));
  };
  EXPECT_EQ(read_text(with_start(9)).questions.size(), 1U);
  EXPECT_EQ(read_failure(with_start(10)),
            "dev.json: question \"q\": answer_start 10 of \"b\" is an offset in UTF-16 code units, "
            "expected 9, the offset in Unicode code points");
  EXPECT_EQ(read_failure(with_start(14)),
            "dev.json: question \"q\": answer_start 14 of \"b\" is an offset in bytes, expected 9, "
            "the offset in Unicode code points");
}

TEST(SquadReader, RefusesAnswersThatAreNotInTheirContext) {
  const auto with_answers = [](const std::string& answers) {
    return read_failure(one_paragraph("a b a", question("q", "x", answers)));
  };
  EXPECT_EQ(with_answers(answer("c", 2)),
            "dev.json: question \"q\": the answer \"c\" does not occur in its context");
  EXPECT_EQ(
      with_answers(answer("b", 1)),
      "dev.json: question \"q\": the answer \"b\" is not at answer_start 1 of its context but "
      "at 2; offsets count Unicode code points from 0");
  EXPECT_THAT(with_answers(answer("b", 99)), HasSubstr("not at answer_start 99"));
  EXPECT_THAT(with_answers(answer("b", -1)), EndsWith("answer_start is -1, expected at least 0"));
  EXPECT_THAT(with_answers(answer("", 0)), HasSubstr("an answer is an empty string"));
  EXPECT_THAT(with_answers(answer(" ", 1)),
              EndsWith("the answer \" \" has only white space, expected text"));
  EXPECT_THAT(with_answers(R"([{"text": "b", "answer_start": 18446744073709551615}])"),
              EndsWith("answer_start is 18446744073709551615, expected an offset in the context"));
  EXPECT_THAT(with_answers(R"([{"text": "a"}])"),
              EndsWith("answer_start is missing or null, expected an integer"));
  EXPECT_THAT(with_answers(R"([{"text": "a", "answer_start": "0"}])"),
              EndsWith("answer_start is string, expected an integer"));
  EXPECT_THAT(with_answers(R"([{"text": "a", "answer_start": 0.5}])"),
              EndsWith("answer_start is 0.5, expected an integer"));
  EXPECT_THAT(with_answers(R"({"text": ["a"], "answer_start": []})"), HasSubstr("of one length"));
  EXPECT_THAT(with_answers(R"("a")"), HasSubstr("\"answers\" is string"));
}

TEST(SquadReader, RefusesAnImpossibleQuestionWithAnswers) {
  EXPECT_EQ(read_failure(one_paragraph("a", R"({"id": "q", "question": "x", "is_impossible": true,
                                              "answers": )" +
                                                answer("a", 0) + "}")),
            "dev.json: question \"q\": is_impossible is true, but there are 1 answers, expected "
            "none");
}

TEST(SquadReader, RefusesDuplicateIdsAndEmptyOrBlankTexts) {
  EXPECT_EQ(
      read_failure(one_paragraph("a", question("q", "x", "[]") + "," + question("q", "y", "[]"))),
      "dev.json: question \"q\": the id occurs twice, expected distinct ids");
  EXPECT_EQ(read_failure(one_paragraph("", question("q", "x", "[]"))),
            "dev.json: question \"q\": the context is empty, expected text");
  EXPECT_EQ(read_failure(one_paragraph(" \\t\\u00a0\\u3000", question("q", "x", "[]"))),
            "dev.json: question \"q\": the context has only white space, expected text");
  EXPECT_EQ(read_failure(one_paragraph("a", question("q", " ", "[]"))),
            "dev.json: question \"q\": the question has only white space, expected text");
  EXPECT_EQ(read_failure(one_paragraph("a", question("", "x", "[]"))),
            "dev.json: the id of question 1 is empty, expected 1 to 1024 bytes of UTF-8");
  EXPECT_EQ(read_failure(one_paragraph("a", "")),
            "dev.json: has no questions, expected at least one");
}

TEST(SquadReader, ChecksAContextThatFirstHadNoQuestions) {
  const std::string empty = R"({"context": " ", "qas": []})";
  const std::string used = R"({"context": " ", "qas": [)" + question("q", "x", "[]") + "]}";
  EXPECT_THAT(read_failure(R"({"data": [{"paragraphs": [)" + empty + "," + used + "]}]}"),
              EndsWith("the context has only white space, expected text"));
}

TEST(SquadReader, NamesMissingAndWrongFields) {
  EXPECT_EQ(read_failure(R"({"data": [{"paragraphs": [{"context": "a"}]}]})"),
            "dev.json: question 1: its paragraph has no list \"qas\" of questions");
  EXPECT_EQ(read_failure(R"({"data": [{"paragraphs": [{"qas": [{"id": "q"}]}]}]})"),
            "dev.json: question 1: \"context\" is missing or null, expected a string");
  EXPECT_EQ(read_failure(one_paragraph("a", R"({"id": "q", "question": 3})")),
            "dev.json: question \"q\": \"question\" is number, expected a string");
  EXPECT_EQ(read_failure(one_paragraph("a", R"({"question": "x"})")),
            "dev.json: question 1: \"id\" is missing or null, expected a string");
  EXPECT_EQ(read_failure(R"([{"id": "q", "question": "x"}])"),
            "dev.json: question \"q\": \"context\" is missing or null, expected a string");
  EXPECT_EQ(
      read_failure("{\"id\": \"q\", \"context\": \"a\", \"question\": \"x\"}\n{\"id\": \"r\"}"),
      "dev.json: question \"r\": \"context\" is missing or null, expected a string");
  for (const char* other :
       {"3", "[1]", "{}", R"({"data": 1})", R"({"data": [1]})",
        R"({"data": [{"paragraphs": [1]}]})", R"({"data": [{"paragraphs": 1}]})"}) {
    EXPECT_THAT(read_failure(other), StartsWith("dev.json: has another layout, expected")) << other;
  }
  EXPECT_THAT(read_failure(R"({"text": "a", "query": {"b": 1}})"),
              StartsWith(R"(dev.json: has an object with "query", "text", expected {"data": )"));
  EXPECT_THAT(read_failure(R"({"data": [{"title": "a"}]})"),
              StartsWith(R"(dev.json: has an object with "title", expected {"data": )"));
  EXPECT_THAT(read_failure(R"({"data": [{}]})"),
              StartsWith(R"(dev.json: has an object with no members, expected {"data": )"));
  EXPECT_THAT(read_failure(" \n"), StartsWith("dev.json: is empty, expected"));
}

// Python would take the last.
TEST(SquadReader, RefusesTwoMembersWithTheQuestions) {
  const std::string rows = kFile.substr(0, kFile.rfind('}'));
  EXPECT_EQ(read_failure(rows + R"(, "data": []})"),
            R"(dev.json: has two members "data", expected one)");
}

TEST(SquadReader, RefusesUnpairedSurrogatesInvalidUtf8AndTruncatedFiles) {
  EXPECT_THAT(read_failure(one_paragraph("a \\ud83d b", question("q", "x", "[]"))),
              AllOf(StartsWith("dev.json:1: has an unpaired UTF-16 surrogate escape, expected"),
                    HasSubstr("(byte 80)")));
  EXPECT_THAT(read_failure(one_paragraph("a \\ude00 b", question("q", "x", "[]"))),
              HasSubstr("unpaired UTF-16 surrogate escape"));
  EXPECT_EQ(read_text(one_paragraph("\\ud83d\\ude00", question("q", "x", "[]"))).contexts[0],
            "\U0001F600");
  EXPECT_EQ(read_failure(one_paragraph("a\n\xC3(", question("q", "x", "[]"))),
            "dev.json:2: byte 74 of the file is not valid UTF-8");
  const DataFolder folder;
  for (std::size_t size = 1; size < kFile.size(); ++size) {
    const std::string name = std::to_string(size) + ".json";
    folder.write(name, kFile.substr(0, size));
    EXPECT_THAT(failure_of([&] { read_json(folder.path() / name); }),
                HasSubstr("ends before the JSON is complete: the file is cut off"))
        << size;
  }
  const std::string row = R"({"id": "q1", "context": "a", "question": "x"})";
  EXPECT_EQ(read_failure(row + "\n" + row.substr(0, 30)),
            "dev.json:2: ends before the JSON is complete: the file is cut off (byte 30, after "
            "question \"q1\")");
  EXPECT_EQ(read_failure(row + "\n{\"id\": }\n"),
            "dev.json:2: is not valid JSON (byte 8, after question \"q1\")");
  EXPECT_EQ(read_failure(row + "\n" + row + std::string(1, '\0') + "{"),
            "dev.json:2: byte 92 of the file is NUL, expected JSON");
  EXPECT_THAT(read_failure("[1e999]"), HasSubstr("has a number out of a double's range"));
}

TEST(SquadReader, ExpectsAJsonFileInsteadOfCsv) {
  EXPECT_EQ(read_failure("id,question,context\n", "qa.csv"),
            "qa.csv:1: is not valid JSON (byte 1); expected a .json or .jsonl file");
}

TEST(SquadReader, ShortensAndEscapesTheIdInMessages) {
  const std::string id = "\\u001b" + std::string(2000, 'x');
  const std::string named = "question \"\\x1b" + std::string(99, 'x') + "...\"";
  EXPECT_EQ(read_failure(one_paragraph("a", R"({"id": ")" + id + R"("})")),
            "dev.json: " + named + ": \"question\" is missing or null, expected a string");
}

TEST(SquadReader, RefusesAPipe) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() / "pipe.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  try {
    read_json(path);
    ADD_FAILURE() << "was read";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_THAT(failure.what(), StartsWith(path + ": is a pipe, expected a regular file"));
  }
}

TEST(SquadReader, RefusesManyObjectsOfAnotherLayoutEarly) {
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{},";
  objects.pop_back();
  for (const std::string layout :
       {R"({"questions": [LIST]})", R"({"data": [{"questions": [LIST]}]})",
        R"({"data": [{"paragraphs": [{"questions": [LIST]}]}]})"}) {
    std::string content = layout;
    content.replace(content.find("LIST"), 4, objects);
    EXPECT_THAT(read_failure(content),
                HasSubstr("has more than 20000 objects and lists without the end of a paragraph or "
                          "row, expected {\"data\": "))
        << layout;
  }
}

TEST(SquadReader, BoundsLinesTextsAndNesting) {
  const std::string row = R"({"id": "q1", "context": "a", "question": "x"})";
  const std::string large(std::size_t{10} << 20, 'a');
  EXPECT_EQ(read_failure(row + "\n{\"id\": \"q2\", \"context\": \"" + large + "\"}"),
            "dev.json:2: the line has 10485787 bytes, expected at most 1048576");
  EXPECT_EQ(read_failure(one_paragraph(large, question("q", "x", "[]"))),
            "dev.json: question \"q\": the context has 10485760 bytes, expected at most 1048576");
  EXPECT_EQ(read_failure(one_paragraph("a", question("q", large, "[]"))),
            "dev.json: question \"q\": the question has 10485760 bytes, expected at most 1048576");
  EXPECT_THAT(read_failure(std::string(100'000, '[')), HasSubstr("nested more than 16 deep"));
  EXPECT_THAT(read_failure(row + "\n{\"a\": " + std::string(100'000, '[')),
              HasSubstr("line 2 is nested more than 16 deep"));
}

TEST(ExamplesBuilder, RefusesTextFromMemoryThatIsNotUtf8) {
  EXPECT_EQ(failure_of([] {
              ExamplesBuilder builder("train[0:2]");
              builder.add({"q", "a", "x\xFF", {}});
            }),
            "train[0:2]: question \"q\": byte 2 of the question is not valid UTF-8");
}

}  // namespace
}  // namespace tilewright::tasks::squad
