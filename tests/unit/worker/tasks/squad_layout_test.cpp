#include <gtest/gtest.h>

#include "tests/unit/worker/tasks/squad_builders.h"
#include "worker/tasks/squad/layout.h"

namespace tilewright::tasks::squad {
namespace {

bool found_in(const std::string& content, const std::string& name = "train.json") {
  const DataFolder folder;
  folder.write(name, content);
  return holds_questions(folder.path() / name);
}

const std::string kPublished = one_paragraph("a b", question("q", "x", answer("b", 2)));
const std::string kRow =
    R"({"id": "q", "title": "T", "context": "a b", "question": "x", "answers": {"text": ["b"],)"
    R"( "answer_start": [2]}})";

TEST(HoldsQuestions, InEveryLayoutOfTheReader) {
  EXPECT_TRUE(found_in(kPublished));
  EXPECT_TRUE(found_in("\xEF\xBB\xBF" + kPublished));
  EXPECT_TRUE(found_in(R"({"data": [)" + kRow + "]}"));
  EXPECT_TRUE(found_in(R"({"version": {"data": [1]}, "data": [)" + kRow + "]}"));
  EXPECT_TRUE(found_in("[" + kRow + "," + kRow + "]"));
  EXPECT_TRUE(found_in(kRow));
  EXPECT_TRUE(found_in(kRow + "\n" + kRow + "\n", "lines.jsonl"));
}

TEST(HoldsQuestions, NotInAClassification) {
  EXPECT_FALSE(found_in(R"({"sentence1": "a", "sentence2": "b", "label": 1})"));
  EXPECT_FALSE(found_in(R"([{"question": "a", "context": "b", "label": "yes"}])"));
  EXPECT_FALSE(found_in(R"({"question": "a", "context": "b", "answers": "c", "label": 0})"));
  EXPECT_FALSE(found_in(R"({"paragraphs": "a", "label": 0})"));
  EXPECT_FALSE(found_in(R"({"data": [{"text": "a", "label": 0, "more": {"question": 1,)"
                        R"( "context": 1, "answers": 1}}]})"));
  EXPECT_FALSE(found_in("question,context,answers\na,b,c\n", "train.csv"));
}

// The reader reports what is wrong with the file.
TEST(HoldsQuestions, InAFileThatIsCutOff) {
  EXPECT_TRUE(found_in(kPublished.substr(0, kPublished.size() / 2)));
  EXPECT_TRUE(found_in(kRow.substr(0, kRow.size() - 3)));
  EXPECT_FALSE(found_in(R"({"data": [{"id": "q", "cont)"));
  EXPECT_FALSE(found_in(""));
  EXPECT_FALSE(holds_questions("/nowhere/train.json"));
  EXPECT_FALSE(holds_questions("/proc"));
}

// Only the beginning is read.
TEST(HoldsQuestions, InAFileThatIsInvalidLater) {
  EXPECT_TRUE(found_in("[" + kRow + ", nonsense"));
}

}  // namespace
}  // namespace tilewright::tasks::squad
