#include "worker/tasks/squad/features.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "worker/runtime/parallel.h"
#include "worker/tasks/squad/python_text.h"

namespace tilewright::tasks::squad {
namespace {

// Sets the positions of an answer that covers the code points [begin, end) of the context.
void locate_answer(const std::vector<text::CharacterSpan>& spans, std::size_t begin,
                   std::size_t end, Feature& feature) {
  const auto first = spans.begin() + feature.window_begin;
  const auto last = first + feature.window_size;
  if (first->begin > begin || std::prev(last)->end < end) return;
  const auto token_of = [&](auto span) {
    return static_cast<std::int32_t>(feature.first_token) + static_cast<std::int32_t>(span - first);
  };
  const auto after_start = std::find_if(
      first, last, [&](const text::CharacterSpan& span) { return span.begin > begin; });
  feature.start = token_of(after_start) - (after_start == last ? 0 : 1);
  auto at_end = last;
  while (at_end != first && std::prev(at_end)->end >= end) --at_end;
  feature.end = token_of(at_end);
}

class Builder {
 public:
  Builder(const Examples& examples, const text::Tokenizer& tokenizer, const FeatureOptions& options,
          const std::string& source)
      : examples_(examples), tokenizer_(tokenizer), options_(options), source_(source) {
    TW_CHECK(options.max_seq_length > kSpecialTokens, "max_seq_length is {}",
             options.max_seq_length);
    ids_.resize(examples.contexts.size());
    made_.spans.resize(examples.contexts.size());
    tokenize();
  }

  Features make() && {
    reserve();
    for (std::size_t question = 0; question < question_ids_.size() && !full(); ++question) {
      add_question(question);
    }
    return std::move(made_);
  }

 private:
  // Converts the questions that are needed, of which each has a feature at least, and their
  // contexts.
  void tokenize() {
    const std::size_t all = examples_.questions.size();
    question_ids_.resize(options_.max_features > 0 ? std::min(options_.max_features, all) : all);
    std::vector<std::size_t> contexts;
    std::vector<bool> is_needed(ids_.size());
    for (std::size_t i = 0; i < question_ids_.size(); ++i) {
      const std::size_t context = examples_.questions[i].context;
      if (!is_needed[context]) contexts.push_back(context);
      is_needed[context] = true;
    }
    runtime::for_each_index(options_.pool, std::ssize(contexts), [&](std::int64_t i) {
      const std::size_t context = contexts[static_cast<std::size_t>(i)];
      tokenizer_.tokenize(examples_.contexts[context], ids_[context], made_.spans[context]);
    });
    constexpr std::int64_t kChunk = 64;  // questions that a thread takes at a time
    const std::int64_t questions = std::ssize(question_ids_);
    runtime::for_each_index(
        options_.pool, (questions + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
          const std::int64_t end = std::min((chunk + 1) * kChunk, questions);
          for (auto i = static_cast<std::size_t>(chunk * kChunk); std::cmp_less(i, end); ++i) {
            tokenizer_.tokenize(python_lstrip(examples_.questions[i].text), question_ids_[i]);
          }
        });
  }

  // Allocates the tokens of all windows at once.
  void reserve() {
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < question_ids_.size(); ++i) {
      const std::size_t context = ids_[examples_.questions[i].context].size();
      const std::size_t used = question_ids_[i].size() + kSpecialTokens;
      const std::size_t shared = used + options_.doc_stride;  // by neighbouring windows
      if (used + context <= options_.max_seq_length) {
        tokens += used + context;
      } else if (shared < options_.max_seq_length) {
        const std::size_t step = options_.max_seq_length - shared;
        tokens += options_.max_seq_length * ((context - options_.doc_stride + step - 1) / step);
      }
    }
    if (options_.max_features > 0) {
      tokens = std::min(tokens, options_.max_features * options_.max_seq_length);
    }
    made_.tokens.ids.reserve(tokens);
  }

  bool full() const {
    return options_.max_features > 0 && made_.features.size() >= options_.max_features;
  }

  [[noreturn]] void fail(const Question& question, const std::string& sentence) const {
    throw Failure(ExitCode::kData, fmt::format("{}: question {}: {}", source_,
                                               quoted_excerpt(question.id), sentence));
  }

  void add_question(std::size_t index) {
    const Question& question = examples_.questions[index];
    const std::vector<std::int32_t>& context = ids_[question.context];
    if (context.empty()) fail(question, "the context has no tokens, expected text");
    const std::size_t question_size = question_ids_[index].size();
    const std::size_t used = question_size + kSpecialTokens;
    const bool fits = used + context.size() <= options_.max_seq_length;
    const std::size_t capacity =
        options_.max_seq_length > used ? options_.max_seq_length - used : 0;
    if (!fits && capacity <= options_.doc_stride) {
      fail(question,
           fmt::format("its {} tokens leave {} of max_seq_length {} for the context, expected more "
                       "than doc_stride {}",
                       question_size, capacity, options_.max_seq_length, options_.doc_stride));
    }
    const std::size_t size = fits ? context.size() : capacity;
    for (std::size_t begin = 0; !full(); begin += size - options_.doc_stride) {
      const std::size_t end = std::min(begin + size, context.size());
      add_window(index, begin, end);
      if (end == context.size()) break;
    }
  }

  void add_window(std::size_t index, std::size_t begin, std::size_t end) {
    const Question& question = examples_.questions[index];
    const std::vector<std::int32_t>& context = ids_[question.context];
    DatasetLists& tokens = made_.tokens;
    const std::size_t before = tokens.ids.size();
    tokens.ids.push_back(tokenizer_.special().cls);
    const std::vector<std::int32_t>& question_ids = question_ids_[index];
    tokens.ids.insert(tokens.ids.end(), question_ids.begin(), question_ids.end());
    tokens.ids.push_back(tokenizer_.special().sep);
    tokens.first_segments.push_back(static_cast<std::int32_t>(tokens.ids.size() - before));
    Feature feature = {.question = static_cast<std::uint32_t>(index),
                       .first_token = static_cast<std::uint32_t>(tokens.ids.size() - before),
                       .window_begin = static_cast<std::uint32_t>(begin),
                       .window_size = static_cast<std::uint32_t>(end - begin)};
    tokens.ids.insert(tokens.ids.end(), context.begin() + static_cast<std::ptrdiff_t>(begin),
                      context.begin() + static_cast<std::ptrdiff_t>(end));
    tokens.ids.push_back(tokenizer_.special().sep);
    tokens.offsets.push_back(static_cast<std::int64_t>(tokens.ids.size()));
    if (!question.answers.empty()) {
      const Answer& answer = question.answers.front();
      const auto start = static_cast<std::size_t>(answer.start);
      locate_answer(made_.spans[question.context], start, start + count_code_points(answer.text),
                    feature);
    }
    made_.features.push_back(feature);
  }

  const Examples& examples_;
  const text::Tokenizer& tokenizer_;
  const FeatureOptions& options_;
  const std::string& source_;
  Features made_;
  std::vector<std::vector<std::int32_t>> ids_;           // by context
  std::vector<std::vector<std::int32_t>> question_ids_;  // by question
};

}  // namespace

std::optional<text::CharacterSpan> Features::span(const Examples& examples, std::size_t feature,
                                                  std::size_t token) const {
  const Feature& window = features[feature];
  if (token < window.first_token || token >= window.first_token + window.window_size) {
    return std::nullopt;
  }
  return spans[examples.questions[window.question].context]
              [window.window_begin + token - window.first_token];
}

Features make_features(const Examples& examples, const text::Tokenizer& tokenizer,
                       const FeatureOptions& options, const std::string& source) {
  return Builder(examples, tokenizer, options, source).make();
}

}  // namespace tilewright::tasks::squad
