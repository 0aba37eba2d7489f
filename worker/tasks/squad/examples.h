// Questions with their contexts and gold answers, and the checks that every source of them shares:
// JSON files and tables in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tilewright::tasks::squad {

// A substring of the context that begins at its code point `start`.
struct Answer {
  std::string text;
  std::int64_t start = 0;
};

struct Question {
  std::string id;
  std::string text;
  std::size_t context = 0;           // index in Examples::contexts
  std::vector<Answer> answers = {};  // none: the context does not answer the question
};

// Paragraphs are stored once, however many questions they have.
struct Examples {
  std::vector<std::string> contexts;
  std::vector<Question> questions;
};

// A row of a table as in Hugging Face's data sets `squad` and `squad_v2`.
struct Row {
  std::string id;
  std::string context;
  std::string question;
  std::vector<Answer> answers;
};

// Collects questions. Throws Failure(kData) for a question whose id is empty or was used, for text
// that is not valid UTF-8, a context or question of white space only, one of more than
// kMaxTextBytes, and an answer that is not in its context at its offset.
class ExamplesBuilder {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxIdBytes = 1024;
  static constexpr std::size_t kMaxAnswers = 1000;  // of one question

  // `source` names the file or table in messages. `max_questions` > 0: ignores those after them.
  explicit ExamplesBuilder(std::string source, std::size_t max_questions = 0);

  // Equal contexts are stored once.
  void add(Row row);

  // The context's index for the questions that follow. The first of them names it in a message.
  std::size_t add_context(std::string context);
  void add_question(Question question);

  bool full() const { return max_questions_ > 0 && examples_.questions.size() >= max_questions_; }
  std::size_t questions() const { return examples_.questions.size(); }
  // The id of the last question, to locate an error after it; empty before the first.
  const std::string& last_id() const;

  // Throws Failure(kData) if there is no question.
  Examples finish() &&;

  // Throws Failure(kData) with the message 'train.json: question "ID": SENTENCE'.
  [[noreturn]] void fail(const std::string& id, const std::string& message) const;

 private:
  void check_text(const std::string& id, const char* what, const std::string& text) const;
  void check_answer(const Question& question, const Answer& answer) const;

  const std::string source_;
  const std::size_t max_questions_;
  Examples examples_;
  std::unordered_map<std::string, std::size_t> context_indices_;
  std::unordered_set<std::string> ids_;
  std::vector<bool> checked_contexts_;
};

}  // namespace tilewright::tasks::squad
