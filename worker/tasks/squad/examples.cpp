#include "worker/tasks/squad/examples.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "common/base/printable.h"
#include "common/base/result.h"
#include "worker/tasks/squad/python_text.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

bool is_at(std::string_view context, std::size_t byte, std::string_view text) {
  return byte <= context.size() && context.compare(byte, text.size(), text) == 0;
}

// The byte offset of a code point, or of the end; nullopt beyond the end.
std::optional<std::size_t> byte_of_code_point(std::string_view context, std::size_t index) {
  for (std::size_t at = 0; at < context.size(); ++at) {
    if (text::begins_code_point(context[at]) && index-- == 0) return at;
  }
  return index == 0 ? std::optional(context.size()) : std::nullopt;
}

// The byte offset of the character at an offset in UTF-16 code units; nullopt if there is none.
std::optional<std::size_t> byte_of_utf16(std::string_view context, std::size_t units) {
  std::size_t seen = 0;
  std::size_t at = 0;
  while (at < context.size() && seen < units) {
    const text::Decoded next = text::decode_utf8(context, at);
    seen += next.code_point >= 0x10000 ? 2 : 1;
    at += next.size;
  }
  return seen == units ? std::optional(at) : std::nullopt;
}

}  // namespace

ExamplesBuilder::ExamplesBuilder(std::string source, std::size_t max_questions)
    : source_(std::move(source)), max_questions_(max_questions) {}

void ExamplesBuilder::fail(const std::string& id, const std::string& message) const {
  throw Failure(ExitCode::kData,
                fmt::format("{}: question {}: {}", source_, quoted_excerpt(id), message));
}

const std::string& ExamplesBuilder::last_id() const {
  static const std::string kNone;
  return examples_.questions.empty() ? kNone : examples_.questions.back().id;
}

void ExamplesBuilder::check_text(const std::string& id, const char* what,
                                 const std::string& text) const {
  if (text.size() > kMaxTextBytes) {
    fail(id,
         fmt::format("the {} has {} bytes, expected at most {}", what, text.size(), kMaxTextBytes));
  }
  if (const auto bad = text::find_invalid_utf8(text)) {
    fail(id, fmt::format("byte {} of the {} is not valid UTF-8", *bad + 1, what));
  }
  if (text.empty()) fail(id, fmt::format("the {} is empty, expected text", what));
  if (python_lstrip(text).empty()) {
    fail(id, fmt::format("the {} has only white space, expected text", what));
  }
}

// run_qa does not check offsets; with wrong ones it trains on other words than the answers.
void ExamplesBuilder::check_answer(const Question& question, const Answer& answer) const {
  const std::string& id = question.id;
  const std::string_view context = examples_.contexts[question.context];
  const std::string_view text = answer.text;
  if (text.empty()) {
    fail(id,
         "an answer is an empty string, expected a part of the context, or no answers for a "
         "question that the context does not answer");
  }
  if (python_lstrip(text).empty()) {
    fail(id,
         fmt::format("the answer {} has only white space, expected text", quoted_excerpt(text)));
  }
  if (answer.start < 0) {
    fail(id, fmt::format("answer_start is {}, expected at least 0", answer.start));
  }
  const auto start = static_cast<std::size_t>(answer.start);
  const auto begin = byte_of_code_point(context, start);
  if (begin && is_at(context, *begin, text)) return;
  const std::size_t found = context.find(text);
  if (found == std::string_view::npos) {
    fail(id, fmt::format("the answer {} does not occur in its context", quoted_excerpt(text)));
  }
  const auto fail_with_unit = [&](const char* unit, std::size_t byte) {
    fail(id, fmt::format("answer_start {} of {} is an offset in {}, expected {}, the offset in "
                         "Unicode code points",
                         start, quoted_excerpt(text), unit,
                         count_code_points(context.substr(0, byte))));
  };
  if (is_at(context, start, text)) fail_with_unit("bytes", start);
  const auto utf16 = byte_of_utf16(context, start);
  if (utf16 && is_at(context, *utf16, text)) fail_with_unit("UTF-16 code units", *utf16);
  fail(id, fmt::format("the answer {} is not at answer_start {} of its context but at {}; "
                       "offsets count Unicode code points from 0",
                       quoted_excerpt(text), start, count_code_points(context.substr(0, found))));
}

std::size_t ExamplesBuilder::add_context(std::string context) {
  const auto [entry, fresh] =
      context_indices_.emplace(std::move(context), examples_.contexts.size());
  if (fresh) examples_.contexts.push_back(entry->first);
  return entry->second;
}

void ExamplesBuilder::add_question(Question question) {
  if (full()) return;
  const std::string& id = question.id;
  if (id.empty() || id.size() > kMaxIdBytes || text::find_invalid_utf8(id)) {
    throw Failure(
        ExitCode::kData,
        fmt::format("{}: the id of question {} is {}, expected 1 to {} bytes of UTF-8", source_,
                    questions() + 1,
                    id.empty() ? "empty" : fmt::format("one of {} bytes", id.size()), kMaxIdBytes));
  }
  // Contexts are checked with their first question. A paragraph without questions is not used.
  checked_contexts_.resize(examples_.contexts.size());
  if (!checked_contexts_[question.context]) {
    check_text(id, "context", examples_.contexts[question.context]);
    checked_contexts_[question.context] = true;
  }
  check_text(id, "question", question.text);
  if (question.answers.size() > kMaxAnswers) {
    fail(id,
         fmt::format("has {} answers, expected at most {}", question.answers.size(), kMaxAnswers));
  }
  for (const Answer& answer : question.answers) check_answer(question, answer);
  if (!ids_.insert(id).second) fail(id, "the id occurs twice, expected distinct ids");
  examples_.questions.push_back(std::move(question));
}

void ExamplesBuilder::add(Row row) {
  if (full()) return;
  const std::size_t context = add_context(std::move(row.context));
  add_question({std::move(row.id), std::move(row.question), context, std::move(row.answers)});
}

Examples ExamplesBuilder::finish() && {
  if (examples_.questions.empty()) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: has no questions, expected at least one", source_));
  }
  return std::move(examples_);
}

}  // namespace tilewright::tasks::squad
