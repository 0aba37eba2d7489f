// Small SQuAD files and data sets for the tests of worker/tasks/squad.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/unit/worker/tasks/builders.h"
#include "worker/tasks/squad/examples.h"
#include "worker/tasks/squad/json_reader.h"

namespace tilewright::tasks::squad {

// A file in the published layout with one paragraph.
inline std::string one_paragraph(const std::string& context, const std::string& questions) {
  return R"({"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": ")" + context +
         R"(", "qas": [)" + questions + "]}]}]}";
}

inline std::string question(const std::string& id, const std::string& text,
                            const std::string& answers) {
  return R"({"id": ")" + id + R"(", "question": ")" + text + R"(", "answers": )" + answers + "}";
}

inline std::string answer(const std::string& text, int start) {
  return R"([{"text": ")" + text + R"(", "answer_start": )" + std::to_string(start) + "}]";
}

inline Examples read_text(const std::string& content, const std::string& name = "dev.json",
                          std::size_t max_questions = 0) {
  const DataFolder folder;
  folder.write(name, content);
  return read_json(folder.path() / name, max_questions);
}

// Expects a Failure(kData) and returns its message from the file's name on.
template <typename Action>
std::string failure_of(const Action& action) {
  try {
    action();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData) << failure.what();
    const std::string message = failure.what();
    return message.substr(message.rfind('/') + 1);
  }
  ADD_FAILURE() << "no failure";
  return "";
}

inline std::string read_failure(const std::string& content, const std::string& name = "dev.json") {
  return failure_of([&] { read_text(content, name); });
}

// Examples of one context, each question with at most one answer.
inline Examples examples_of(const std::string& context, const std::vector<Question>& questions) {
  ExamplesBuilder builder("table");
  for (const Question& one : questions) {
    builder.add({one.id, context, one.text, one.answers});
  }
  return std::move(builder).finish();
}

}  // namespace tilewright::tasks::squad
