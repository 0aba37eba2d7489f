#include "worker/tasks/squad/squad.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/contract/tasks.h"
#include "worker/tasks/squad/json_reader.h"
#include "worker/tasks/squad/metrics.h"
#include "worker/tasks/squad/prediction_files.h"

namespace tilewright::tasks::squad {
namespace {

const SquadSource& source_of(const Dataset& dataset) {
  const auto* source = dynamic_cast<const SquadSource*>(dataset.source.get());
  TW_CHECK(source != nullptr, "a data set of another task");
  return *source;
}

class SquadTask : public Task {
 public:
  SquadTask(const QuestionAnsweringTask& description, const TaskOptions& options)
      : description_(description), name_(description.name), options_(options) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& label_names() const override { return label_names_; }
  nn::Head head() const override { return nn::Head::kQuestionAnswering; }
  LeastLength least_length() const override {
    return {kSpecialTokens + 1, "[CLS], two [SEP] and a token of the context"};
  }
  int num_labels() const override { return 2; }

  std::string file_name(const DataPart& part) const override {
    switch (part.split) {
      case Split::kTrain:
        return std::string(description_.train_file);
      case Split::kDev:
        return std::string(description_.eval_file);
      case Split::kTest:
        return std::string(description_.test_file);
    }
    TW_CHECK(false, "unknown split {}", static_cast<int>(part.split));
  }

  std::vector<std::filesystem::path> input_files(
      const DataPart& part, const std::filesystem::path& data_dir) const override {
    if (options_.tables != nullptr) return options_.tables->files(part);
    return {path_of(part, data_dir)};
  }

  Dataset read(const DataPart& part, const text::Tokenizer& tokenizer,
               const ReadOptions& options) const override {
    ReadOptions changed = options;
    if (description_.version_2_with_negative) {
      changed.question_answering.version_2_with_negative = true;
    }
    if (options_.tables != nullptr) {
      const columnar::Selection columns{{"id", "context", "question", "answers"}, {}};
      return make_dataset(read_tables(options_.tables->read(part, columns), options.max_samples),
                          part.split, tokenizer, changed, options_.tables->name());
    }
    const std::filesystem::path path = path_of(part, options.data_dir);
    // Questions whose answers have a misspelt name would count as questions without answers.
    const bool needs_answers = part.split != Split::kTest;
    return make_dataset(read_json(path, options.max_samples, needs_answers), part.split, tokenizer,
                        changed, path.string());
  }

  Scores score(const DataPart& part, std::span<const float> logits,
               const Dataset& dataset) const override {
    const SquadSource& source = source_of(dataset);
    const bool version_2 = source.options.version_2_with_negative;
    const std::vector<Prediction> predictions = predictions_of(logits, dataset);
    Scores scores;
    if (dataset.has_labels()) {
      std::vector<std::string> answers;
      answers.reserve(predictions.size());
      for (const Prediction& prediction : predictions) answers.push_back(prediction.answer);
      scores.metrics =
          version_2 ? score_v2(source.examples, answers) : score_v1(source.examples, answers);
    }
    scores.prediction_files = make_prediction_files(
        source.examples, predictions, part.split == Split::kTest ? "predict" : "eval", version_2);
    return scores;
  }

 private:
  std::filesystem::path path_of(const DataPart& part, const std::filesystem::path& data_dir) const {
    const std::string& own = part.split == Split::kTrain ? options_.train_file
                             : part.split == Split::kDev ? options_.validation_file
                                                         : options_.test_file;
    return own.empty() ? data_dir / file_name(part) : std::filesystem::path(own);
  }

  const QuestionAnsweringTask& description_;  // in the constant list of tasks
  const std::string name_;
  const TaskOptions options_;
  const std::vector<std::string> label_names_;
};

}  // namespace

Dataset make_dataset(Examples examples, Split split, const text::Tokenizer& tokenizer,
                     const ReadOptions& options, const std::string& source) {
  if (options.max_samples > 0 && examples.questions.size() > options.max_samples) {
    examples.questions.resize(options.max_samples);
  }
  const auto unanswered =
      std::find_if(examples.questions.begin(), examples.questions.end(),
                   [](const Question& question) { return question.answers.empty(); });
  if (split == Split::kDev && !options.question_answering.version_2_with_negative &&
      unanswered != examples.questions.end()) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: question {}: has no answers, expected at least one; "
                              "--version_2_with_negative accepts questions without",
                              source, quoted_excerpt(unanswered->id)));
  }
  // Version 1 has no score for a question without answers.
  const auto count = std::ranges::count_if(
      examples.questions, [](const Question& one) { return !one.answers.empty(); });
  const std::ptrdiff_t least =
      options.question_answering.version_2_with_negative ? 1 : std::ssize(examples.questions);
  const bool labelled = split != Split::kTest || count >= least;
  Features features = make_features(examples, tokenizer,
                                    {.max_seq_length = options.max_seq_length,
                                     .doc_stride = options.question_answering.doc_stride,
                                     .max_features = options.max_samples,
                                     .pool = options.pool},
                                    source);
  DatasetLists lists = std::move(features.tokens);
  features.tokens = {};
  for (const Feature& feature : features.features) {
    if (!labelled) break;
    lists.labels.push_back(feature.start);
    lists.last_labels.push_back(feature.end);
  }
  Dataset dataset(std::move(lists));
  if (split == Split::kTrain) {  // training examples are not scored
    if (count == 0) {
      dataset.warnings.push_back(
          fmt::format("{}: no question has an answer: the model learns to answer none", source));
    }
    return dataset;
  }
  auto kept = std::make_shared<SquadSource>();
  kept->examples = std::move(examples);
  kept->features = std::move(features);
  kept->options = options.question_answering;
  dataset.source = std::move(kept);
  return dataset;
}

std::vector<Prediction> predictions_of(std::span<const float> logits, const Dataset& dataset) {
  const SquadSource& source = source_of(dataset);
  return postprocess(source.examples, source.features, logits, source.options);
}

std::unique_ptr<const Task> make_task(std::string_view name, const TaskOptions& options) {
  for (const QuestionAnsweringTask& description : question_answering_tasks()) {
    if (description.name == name) return std::make_unique<SquadTask>(description, options);
  }
  return nullptr;
}

Examples read_tables(std::span<const columnar::Table> tables, std::size_t max_questions) {
  TW_CHECK(!tables.empty(), "no table");
  ExamplesBuilder builder(tables.front().path().string(), max_questions);
  for (const columnar::Table& table : tables) {
    const columnar::Strings& ids = table.strings("id");
    const columnar::Strings& contexts = table.strings("context");
    const columnar::Strings& questions = table.strings("question");
    const columnar::StringLists texts = table.string_lists("answers.text");
    const columnar::NumberLists<std::int64_t> starts = table.integer_lists("answers.answer_start");
    for (std::size_t row = 0; row < table.rows() && !builder.full(); ++row) {
      Row found{.id = std::string(ids[row]),
                .context = std::string(contexts[row]),
                .question = std::string(questions[row]),
                .answers = {}};
      if (texts.size(row) != starts[row].size()) {
        builder.fail(found.id, fmt::format("has {} answers and {} answer_start, expected as many",
                                           texts.size(row), starts[row].size()));
      }
      for (std::size_t i = 0; i < texts.size(row); ++i) {
        found.answers.push_back({std::string(texts.at(row, i)), starts[row][i]});
      }
      builder.add(std::move(found));
    }
  }
  return std::move(builder).finish();
}

}  // namespace tilewright::tasks::squad
