#include "worker/train/predict_lines.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "worker/tasks/rows/rows.h"
#include "worker/tasks/squad/squad.h"
#include "worker/text/utf8.h"
#include "worker/train/inputs.h"
#include "worker/train/summary.h"
#include "worker/train/trainer.h"

namespace tilewright::train {
namespace {

constexpr const char* kOutput = "predictions";
constexpr std::string_view kSentences =
    "expected {\"sentence\": ...} or {\"sentence1\": ..., \"sentence2\": ...}";
constexpr std::string_view kQuestions = "expected {\"question\": ..., \"context\": ...}";

struct Sentences {
  std::string first;
  std::optional<std::string> second;
};

[[noreturn]] void fail(const std::string& name, std::size_t line, const std::string& message) {
  throw Failure(ExitCode::kData, fmt::format("{}:{}: {}", name, line, message));
}

// A line of the input: a JSON object with strings.
class Line {
 public:
  // `expected`: the objects that the model takes, for messages.
  Line(std::string_view text, const std::string& input, std::size_t number,
       std::string_view expected)
      : json_(nlohmann::json::parse(text, nullptr, false)), input_(input), number_(number) {
    if (json_.is_discarded()) fail(fmt::format("found invalid JSON, {}", expected));
    if (!json_.is_object()) fail(fmt::format("found {}, {}", json_.type_name(), expected));
  }

  [[noreturn]] void fail(const std::string& message) const {
    tilewright::train::fail(input_, number_, message);
  }
  std::size_t number() const { return number_; }
  // Null if there is no such member. Copying a member may recurse deeply.
  const nlohmann::json* find(const std::string& key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  bool contains(const std::string& key) const { return find(key) != nullptr; }
  std::vector<std::string> members() const {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : json_.items()) names.push_back(name);
    return names;
  }
  std::optional<std::string> text(const std::string& key) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_string()) {
      fail(fmt::format("found {} as {}, expected a string", found->type_name(),
                       quoted_excerpt(key)));
    }
    return found->get<std::string>();
  }

 private:
  nlohmann::json json_;
  const std::string& input_;
  std::size_t number_;
};

// Calls `take` for each line of `input` that is not empty; `name`: of the input.
void parse_lines(std::string_view input, const std::string& name, std::string_view expected,
                 const std::function<void(const Line&)>& take) {
  if (input.size() > kMaxInputBytes) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: found more than {} bytes, expected less", name, kMaxInputBytes));
  }
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    const std::string_view line = input.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.size() > kMaxInputLineBytes) {
      fail(name, number,
           fmt::format("found a line of {} bytes, expected at most {}", line.size(),
                       kMaxInputLineBytes));
    }
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (const auto bad = text::find_invalid_utf8(line)) {
      fail(name, number,
           fmt::format("byte {} of the line is not valid UTF-8, expected text in UTF-8", *bad + 1));
    }
    // The parser would end there.
    if (const std::size_t nul = line.find('\0'); nul != std::string_view::npos) {
      fail(name, number, fmt::format("byte {} of the line is NUL, {}", nul + 1, expected));
    }
    take(Line(line, name, number, expected));
  }
}

// The task that the model was trained for, from --task_name or config.json; empty or nullptr:
// unknown, as for a model of the user's own files. The description is that of a GLUE task.
std::string task_name_of_model(const Settings& settings, const checkpoint::ModelTask& model_task) {
  return known_task(settings.task_name.empty() ? model_task.finetuning_task : settings.task_name);
}

const TaskDescription* task_of_model(const Settings& settings,
                                     const checkpoint::ModelTask& model_task) {
  const std::string name = task_name_of_model(settings, model_task);
  for (const TaskDescription& task : task_descriptions()) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

// As in files of the user's own, the only member except the label may have any name. JSON objects
// have no order, so that of several members none is the first.
std::string name_of_single(const Line& line) {
  constexpr const char* kSingle = "sentence";
  if (line.contains(kSingle) || line.contains("sentence1") || line.contains("sentence2")) {
    return kSingle;
  }
  const std::vector<std::string> found = line.members();
  std::vector<std::string> others = found;
  std::erase(others, "label");
  if (others.size() == 1) return others.front();
  line.fail(fmt::format(
      "found {}, {}", found.empty() ? "no members" : tasks::list_names(found, "and"), kSentences));
}

// `task`: of the model; may be null.
Sentences sentences_of(const Line& line, const TaskDescription* task) {
  if (line.contains("question") || line.contains("context")) {
    line.fail(
        "found a question, expected a sentence: the model in --model_name_or_path is a classifier");
  }
  const std::optional<std::string> single = line.text(name_of_single(line));
  for (const char* const other : {"sentence1", "sentence2"}) {
    if (single && line.contains(other)) {
      line.fail(fmt::format("found both sentence and {}, {}", other, kSentences));
    }
  }
  const std::optional<std::string> first = single ? single : line.text("sentence1");
  if (!first) line.fail(fmt::format("found neither sentence nor sentence1, {}", kSentences));
  Sentences sentences{*first, line.text("sentence2")};
  const bool is_pair = sentences.second.has_value();
  if (task != nullptr && is_pair != (task->sentences.size() == 2)) {
    line.fail(fmt::format("found {}, expected {}: the model's task {} takes {}",
                          is_pair ? "sentence2" : "no sentence2",
                          is_pair ? "one sentence" : "sentence1 and sentence2", task->name,
                          is_pair ? "single sentences" : "pairs of sentences"));
  }
  return sentences;
}

// Adds the line's question and returns its id; null: it has none.
nlohmann::json add_question(const Line& line, tasks::squad::ExamplesBuilder& builder) {
  if (line.contains("sentence") || line.contains("sentence1")) {
    line.fail(
        "found a sentence, expected a question: the model in --model_name_or_path answers "
        "questions");
  }
  const std::optional<std::string> question = line.text("question");
  const std::optional<std::string> context = line.text("context");
  if (!question || !context) {
    line.fail(fmt::format("found no {}, {}", question ? "context" : "question", kQuestions));
  }
  const nlohmann::json* const id = line.find("id");
  if (id != nullptr && !id->is_null() && !id->is_string() && !id->is_number()) {
    line.fail(fmt::format("found {} as \"id\", expected a string or a number", id->type_name()));
  }
  // The ids of the lines may repeat; the builder's name a line in messages.
  builder.add({.id = fmt::format("line {}", line.number()),
               .context = *context,
               .question = *question,
               .answers = {}});
  return id == nullptr ? nlohmann::json() : *id;
}

std::string to_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Sentences as the test split of a task. The predictions are one file, kOutput.
class SentenceLines final : public tasks::Task {
 public:
  SentenceLines(std::vector<Sentences> sentences, std::vector<std::string> labels, std::string name)
      : sentences_(std::move(sentences)),
        labels_(std::move(labels)),
        regression_(labels_.size() == 1),
        name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& label_names() const override { return labels_; }
  nn::Head head() const override {
    return regression_ ? nn::Head::kRegression : nn::Head::kClassification;
  }
  int num_labels() const override { return static_cast<int>(labels_.size()); }
  std::string file_name(const tasks::DataPart&) const override { return name_; }

  tasks::Dataset read(const tasks::DataPart&, const text::Tokenizer& tokenizer,
                      const tasks::ReadOptions& options) const override {
    tasks::DatasetLists lists;
    lists.append_all(sentences_.size(), options.pool, [&](std::size_t i) {
      const Sentences& one = sentences_[i];
      return one.second ? tokenizer.encode_pair(one.first, *one.second, options.max_seq_length)
                        : tokenizer.encode(one.first, options.max_seq_length);
    });
    return tasks::Dataset(std::move(lists));
  }

  tasks::Scores score(const tasks::DataPart&, std::span<const float> logits,
                      const tasks::Dataset& data) const override {
    std::string lines;
    for (std::size_t i = 0; i < data.size(); ++i) {
      lines += to_line(describe(logits.subspan(i * labels_.size(), labels_.size())));
    }
    return {.prediction_files = {{kOutput, lines}}};
  }

 private:
  nlohmann::ordered_json describe(std::span<const float> logits) const {
    if (regression_) return {{"score", logits[0]}};
    const auto best = std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - *best);
    return {{"label", labels_[static_cast<std::size_t>(best - logits.begin())]},
            {"score", 1 / sum}};
  }

  std::vector<Sentences> sentences_;
  std::vector<std::string> labels_;
  bool regression_;
  std::string name_;
};

// Questions as the test split of a task. The predictions are one file, kOutput.
class QuestionLines final : public tasks::Task {
 public:
  // `ids`: of the questions; null: the line has none.
  QuestionLines(tasks::squad::Examples examples, std::vector<nlohmann::json> ids, std::string name)
      : examples_(std::move(examples)), ids_(std::move(ids)), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& label_names() const override { return label_names_; }
  nn::Head head() const override { return nn::Head::kQuestionAnswering; }
  int num_labels() const override { return 2; }
  std::string file_name(const tasks::DataPart&) const override { return name_; }

  tasks::Dataset read(const tasks::DataPart& part, const text::Tokenizer& tokenizer,
                      const tasks::ReadOptions& options) const override {
    return tasks::squad::make_dataset(examples_, part.split, tokenizer, options, name_);
  }

  tasks::Scores score(const tasks::DataPart&, std::span<const float> logits,
                      const tasks::Dataset& data) const override {
    const auto predictions = tasks::squad::predictions_of(logits, data);
    std::string lines;
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      lines += to_line(describe(ids_[i], predictions[i]));
    }
    return {.prediction_files = {{kOutput, lines}}};
  }

 private:
  static nlohmann::ordered_json describe(const nlohmann::json& id,
                                         const tasks::squad::Prediction& prediction) {
    // None: the windows' best starts and ends are all outside of the context or in wrong order.
    const tasks::squad::Candidate none;
    const tasks::squad::Candidate* const chosen = prediction.chosen();
    const tasks::squad::Candidate& answer = chosen == nullptr ? none : *chosen;
    nlohmann::ordered_json json;
    if (!id.is_null()) json["id"] = id;
    json["answer"] = answer.text;
    json["score"] = answer.probability;
    json["start"] = answer.span.begin;
    json["end"] = answer.span.end;
    return json;
  }

  tasks::squad::Examples examples_;
  std::vector<nlohmann::json> ids_;
  std::string name_;
  std::vector<std::string> label_names_;
};

Settings prediction_settings(const TrainingArguments& arguments, const RunOptions& options) {
  Settings settings{arguments.settings()};
  if (settings.model_name_or_path.empty()) {
    throw Failure(ExitCode::kUsage, fmt::format("--model_name_or_path is missing, expected the {}",
                                                find_training_flag("model_name_or_path")->help));
  }
  settings.do_train = settings.do_eval = false;
  settings.do_predict = true;
  settings.nominal_workers = settings.max_workers = settings.virtual_shards = 1;
  settings.global_batch = settings.per_device_train_batch_size;
  settings.init_seed = settings.data_seed = settings.seed;
  settings.exact = is_exact(settings);
  if (!arguments.is_set("bf16")) settings.bf16 = has_bf16(options.isas);
  return settings;
}

}  // namespace

std::string predict_lines(const TrainingArguments& arguments, const RunOptions& options,
                          std::string_view input, const std::string& name, Logger& log) {
  Settings settings = prediction_settings(arguments, options);
  resolve_model_names(settings, hub_options(arguments, options, log));
  const std::string& config_path =
      settings.config_name.empty() ? settings.model_name_or_path : settings.config_name;
  const checkpoint::ModelConfig config = checkpoint::read_model_config(config_path);
  const checkpoint::ModelTask model_task = checkpoint::read_model_task(config_path);
  const bool questions = model_task.answers_questions;
  // The default of run_qa.py.
  if (questions && !arguments.is_set("max_seq_length")) settings.max_seq_length = 384;
  if (questions && !arguments.is_set("version_2_with_negative")) {
    settings.version_2_with_negative =
        task_name_of_model(settings, model_task) == question_answering_task(true);
  }
  std::unique_ptr<const tasks::Task> task;
  if (questions) {
    tasks::squad::ExamplesBuilder builder(name);
    std::vector<nlohmann::json> ids;
    parse_lines(input, name, kQuestions,
                [&](const Line& line) { ids.push_back(add_question(line, builder)); });
    if (ids.empty()) return "";
    task = std::make_unique<QuestionLines>(std::move(builder).finish(), std::move(ids), name);
  } else {
    const TaskDescription* const glue_task = task_of_model(settings, model_task);
    std::vector<Sentences> sentences;
    parse_lines(input, name, kSentences,
                [&](const Line& line) { sentences.push_back(sentences_of(line, glue_task)); });
    if (sentences.empty()) return "";
    if (nlohmann::json::parse(config.json).value("problem_type", nlohmann::json()) ==
        "multi_label_classification") {
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: problem_type is \"multi_label_classification\", expected a "
                                "model with one label for each sentence",
                                settings.model_name_or_path));
    }
    task = std::make_unique<SentenceLines>(std::move(sentences), config.labels, name);
  }
  runtime::ThreadPool pool(options.threads, options.thread_cpus);
  const Job job =
      load_job(settings, "predict", {.task = std::move(task), .tables = nullptr, .pool = &pool});
  if (const std::string line = max_seq_length_line(settings.max_seq_length, job); !line.empty()) {
    log.warn("{}", line);
  }
  Faults faults;
  const auto trainer = make_trainer(job, options.isas.back(), pool, faults, log);
  const auto mesh = collectives::Mesh::single_rank();
  trainer->begin_epoch(*mesh);
  trainer->restore(*mesh, {});
  return trainer->evaluate(*mesh, job.prediction_sets.front(), {}).prediction_files.at(kOutput);
}

}  // namespace tilewright::train
