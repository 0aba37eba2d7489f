#include "worker/train/predict_lines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "common/base/check.h"
#include "worker/checkpoint/parameters.h"
#include "worker/train/inputs.h"
#include "worker/train/trainer.h"

namespace tilewright::train {
namespace {

constexpr const char* kOutput = "predictions";

struct Sentences {
  std::string first;
  std::optional<std::string> second;
};

[[noreturn]] void fail(const std::string& name, std::size_t line, const std::string& sentence) {
  throw Failure(ExitCode::kData, fmt::format("{}:{}: {}", name, line, sentence));
}

Sentences parse_line(std::string_view line, const std::string& name, std::size_t number) {
  constexpr std::string_view kExpected =
      "expected {\"sentence\": ...} or {\"sentence1\": ..., \"sentence2\": ...}";
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) fail(name, number, fmt::format("found invalid JSON, {}", kExpected));
  if (!json.is_object()) {
    fail(name, number, fmt::format("found {}, {}", json.type_name(), kExpected));
  }
  if (json.contains("question") || json.contains("context")) {
    fail(
        name, number,
        "found a question, expected a sentence: the model in --model_name_or_path is a classifier");
  }
  const auto text = [&](const char* key) -> std::optional<std::string> {
    const auto found = json.find(key);
    if (found == json.end()) return std::nullopt;
    if (!found->is_string()) {
      fail(name, number,
           fmt::format("found {} as \"{}\", expected a string", found->type_name(), key));
    }
    return found->get<std::string>();
  };
  const std::optional<std::string> single = text("sentence");
  const std::optional<std::string> first = single ? single : text("sentence1");
  if (!first)
    fail(name, number, fmt::format("found neither sentence nor sentence1, {}", kExpected));
  return {*first, single ? std::nullopt : text("sentence2")};
}

std::vector<Sentences> parse_lines(std::string_view input, const std::string& name) {
  if (input.size() > kMaxInputBytes) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: found more than {} bytes, expected less", name, kMaxInputBytes));
  }
  std::vector<Sentences> all;
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
    all.push_back(parse_line(line, name, number));
  }
  return all;
}

// The lines as the test split of a task. The predictions are one file, kOutput.
class LinesTask final : public tasks::Task {
 public:
  LinesTask(std::vector<Sentences> sentences, std::vector<std::string> labels, std::string name)
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
    tasks::Dataset data;
    for (const Sentences& one : sentences_) {
      data.append(one.second ? tokenizer.encode_pair(one.first, *one.second, options.max_seq_length)
                             : tokenizer.encode(one.first, options.max_seq_length));
    }
    return data;
  }

  tasks::Metrics metrics(std::span<const float>, const tasks::Dataset&) const override {
    return {};
  }

  std::map<std::string, std::string> prediction_files(const tasks::DataPart&,
                                                      std::span<const float> logits,
                                                      const tasks::Dataset& data) const override {
    std::string lines;
    for (std::size_t i = 0; i < data.size(); ++i) {
      lines += describe(logits.subspan(i * labels_.size(), labels_.size()))
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
               "\n";
    }
    return {{kOutput, lines}};
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

Settings prediction_settings(const TrainingArguments& arguments, const RunOptions& options) {
  Settings settings{arguments.settings()};
  if (settings.model_name_or_path.empty()) {
    throw Failure(ExitCode::kUsage, fmt::format("--model_name_or_path is missing; expected the {}",
                                                find_training_flag("model_name_or_path")->help));
  }
  settings.do_train = settings.do_eval = false;
  settings.do_predict = true;
  settings.nominal_workers = settings.max_workers = settings.virtual_shards = 1;
  settings.global_batch = settings.per_device_train_batch_size;
  settings.init_seed = settings.data_seed = settings.seed;
  if (settings.uses_onednn()) settings.exact = false;
  if (!arguments.is_set("bf16")) settings.bf16 = has_bf16(options.isas);
  return settings;
}

}  // namespace

std::string predict_lines(const TrainingArguments& arguments, const RunOptions& options,
                          std::string_view input, const std::string& name, Logger& log) {
  Settings settings = prediction_settings(arguments, options);
  resolve_model_names(settings, hub_options(arguments, options, log));
  std::vector<Sentences> sentences = parse_lines(input, name);
  if (sentences.empty()) return "";
  auto labels =
      checkpoint::read_model_config(settings.config_name.empty() ? settings.model_name_or_path
                                                                 : settings.config_name)
          .labels;
  const Job job =
      load_job(settings, "predict",
               {.task = std::make_unique<LinesTask>(std::move(sentences), std::move(labels), name),
                .tables = nullptr});
  for (const char* tensor : {"classifier.weight", "classifier.bias"}) {
    if (checkpoint::find_parameter(*job.weights, tensor)) continue;
    throw Failure(ExitCode::kWeights,
                  fmt::format("{}: the weights lack {}, expected those of a trained classifier",
                              settings.model_name_or_path, tensor));
  }
  runtime::ThreadPool pool(settings.threads > 0 ? static_cast<int>(settings.threads)
                                                : options.threads);
  Faults faults;
  const auto trainer = make_trainer(job, options.isas.back(), pool, faults, log);
  const auto mesh = collectives::Mesh::single_rank();
  trainer->begin_epoch(*mesh);
  trainer->restore(*mesh, {});
  return trainer->evaluate(*mesh, job.prediction_sets.front()).prediction_files.at(kOutput);
}

}  // namespace tilewright::train
