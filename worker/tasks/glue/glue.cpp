#include "worker/tasks/glue/glue.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/contract/tasks.h"
#include "worker/tasks/glue/baselines.h"
#include "worker/tasks/glue/tsv.h"

namespace tilewright::tasks::glue {
namespace {

double value_of(TaskMetric metric, std::span<const std::int32_t> predictions,
                std::span<const std::int32_t> labels) {
  switch (metric) {
    case TaskMetric::kAccuracy:
      return accuracy(predictions, labels);
    case TaskMetric::kF1:
      return f1(predictions, labels);
    case TaskMetric::kMatthewsCorrelation:
      return matthews_correlation(predictions, labels);
  }
  TW_CHECK(false, "unknown metric {}", static_cast<int>(metric));
}

class GlueTask : public Task {
 public:
  explicit GlueTask(const TaskDescription& description)
      : description_(description),
        name_(description.name),
        label_names_(description.label_names.begin(), description.label_names.end()) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& label_names() const override { return label_names_; }
  int num_labels() const override { return static_cast<int>(label_names_.size()); }
  std::string file_name(const DataPart& part) const override {
    return std::string(part.split == Split::kTrain ? description_.train_file
                                                   : description_.eval_file);
  }

  Dataset read(const DataPart& part, const text::Tokenizer& tokenizer,
               const ReadOptions& options) const override {
    if (options.max_seq_length < 3) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("max_seq_length is {}, expected at least 3 for [CLS] and two [SEP]",
                                options.max_seq_length));
    }
    Dataset dataset;
    for (const Example& example : examples(part, options.data_dir, options.max_samples)) {
      dataset.append(
          is_pair() ? tokenizer.encode_pair(example.first, example.second, options.max_seq_length)
                    : tokenizer.encode(example.first, options.max_seq_length));
      dataset.labels.push_back(example.label);
    }
    return dataset;
  }

  Metrics metrics(std::span<const float> logits, const Dataset& dataset) const override {
    TW_CHECK(logits.size() == dataset.size() * label_names().size(), "{} logits for {} examples",
             logits.size(), dataset.size());
    return score(predictions_of(logits, num_labels()), dataset.labels);
  }

  std::vector<Baseline> baselines(const std::filesystem::path& data_dir) const override {
    const std::vector<Example> train = examples({Split::kTrain}, data_dir, 0);
    const std::vector<Example> dev = examples({Split::kDev}, data_dir, 0);
    std::vector<std::int32_t> labels;
    labels.reserve(dev.size());
    for (const Example& example : dev) labels.push_back(example.label);
    std::vector<Baseline> found = {{"majority", score(majority_class(train, dev), labels)}};
    if (is_pair() && num_labels() == 2) {
      found.push_back({"word overlap", score(overlap_rule(train, dev), labels)});
    }
    return found;
  }

 private:
  bool is_pair() const { return description_.sentences.size() == 2; }

  std::vector<Example> examples(const DataPart& part, const std::filesystem::path& data_dir,
                                std::size_t max_samples) const {
    const Tsv tsv(data_dir / file_name(part), description_.headerless_fields, max_samples);
    const auto index_of = [&](const TaskColumn& column) {
      return description_.headerless_fields > 0 ? column.index : tsv.column(column.name);
    };
    const std::size_t label = index_of(description_.label);
    const std::size_t first = index_of(description_.sentences.front());
    const std::size_t second = index_of(description_.sentences.back());
    std::vector<Example> examples;
    examples.reserve(tsv.rows().size());
    for (const TsvRow& row : tsv.rows()) {
      examples.push_back({std::string(row.fields[first]),
                          is_pair() ? std::string(row.fields[second]) : std::string(),
                          label_of(tsv, row.line, row.fields[label])});
    }
    return examples;
  }

  // The label is given as its id or its name.
  std::int32_t label_of(const Tsv& tsv, std::size_t line, std::string_view text) const {
    std::string expected;
    for (std::size_t id = 0; id < label_names_.size(); ++id) {
      const std::string number = std::to_string(id);
      if (text == number || text == label_names_[id]) return static_cast<std::int32_t>(id);
      expected += fmt::format("{}{} ({})", id == 0 ? "" : " or ", number, label_names_[id]);
    }
    tsv.fail(line, fmt::format("the label is \"{}\", expected {}", text.substr(0, 60), expected));
  }

  // As in run_glue: several metrics are followed by their mean, combined_score.
  Metrics score(std::span<const std::int32_t> predictions,
                std::span<const std::int32_t> labels) const {
    Metrics found;
    for (const TaskMetric metric : description_.metrics) {
      found.emplace_back(to_string(metric), value_of(metric, predictions, labels));
    }
    if (found.size() > 1) {
      double sum = 0;
      for (const auto& [name, value] : found) sum += value;
      found.emplace_back("combined_score", sum / static_cast<double>(found.size()));
    }
    return found;
  }

  const TaskDescription& description_;  // in the constant list of tasks
  const std::string name_;
  const std::vector<std::string> label_names_;
};

}  // namespace

std::vector<std::unique_ptr<const Task>> make_tasks() {
  std::vector<std::unique_ptr<const Task>> tasks;
  for (const TaskDescription& description : task_descriptions()) {
    tasks.push_back(std::make_unique<GlueTask>(description));
  }
  return tasks;
}

}  // namespace tilewright::tasks::glue
