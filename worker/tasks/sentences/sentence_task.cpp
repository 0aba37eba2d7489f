#include "worker/tasks/sentences/sentence_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"

namespace tilewright::tasks::sentences {
namespace {

// Of a data set without labels: the rows of its examples in the file.
struct RowIndices : Source {
  std::vector<std::int64_t> indices;
};

double value_of(TaskMetric metric, std::span<const std::int32_t> predictions,
                std::span<const std::int32_t> labels) {
  switch (metric) {
    case TaskMetric::kAccuracy:
      return accuracy(predictions, labels);
    case TaskMetric::kF1:
      return f1(predictions, labels);
    case TaskMetric::kMatthewsCorrelation:
      return matthews_correlation(predictions, labels);
    default:
      TW_CHECK(false, "{} is not a metric of classes", to_string(metric));
  }
}

double value_of(TaskMetric metric, std::span<const float> predictions,
                std::span<const float> values) {
  switch (metric) {
    case TaskMetric::kPearson:
      return pearson(predictions, values);
    case TaskMetric::kSpearman:
      return spearman(predictions, values);
    case TaskMetric::kMeanSquaredError:
      return mean_squared_error(predictions, values);
    default:
      TW_CHECK(false, "{} is not a metric of numbers", to_string(metric));
  }
}

template <typename T>
Metrics score_all(const std::vector<TaskMetric>& metrics, std::span<const T> predictions,
                  std::span<const T> expected) {
  Metrics found;
  double sum = 0;
  for (const TaskMetric metric : metrics) {
    found.emplace_back(to_string(metric), value_of(metric, predictions, expected));
    sum += found.back().second;
  }
  if (found.size() > 1) {
    found.emplace_back(kCombinedScore, sum / static_cast<double>(metrics.size()));
  }
  return found;
}

}  // namespace

SentenceTask::SentenceTask(std::string name, std::vector<std::string> label_names, bool is_pair,
                           std::vector<TaskMetric> metrics)
    : name_(std::move(name)),
      label_names_(std::move(label_names)),
      is_pair_(is_pair),
      metrics_(std::move(metrics)) {}

Dataset SentenceTask::read(const DataPart& part, const text::Tokenizer& tokenizer,
                           const ReadOptions& options) const {
  TW_CHECK(options.max_seq_length >= least_length().tokens, "max_seq_length is {}",
           options.max_seq_length);
  Examples examples = read_examples(part, options.data_dir, options.max_samples);
  DatasetLists lists;
  lists.append_all(examples.rows.size(), options.pool, [&](std::size_t i) {
    const Example& example = examples.rows[i];
    return is_pair_ ? tokenizer.encode_pair(example.first, example.second, options.max_seq_length)
                    : tokenizer.encode(example.first, options.max_seq_length);
  });
  for (const Example& example : examples.rows) {
    if (part.split == Split::kTest) continue;
    if (is_regression()) {
      lists.values.push_back(example.value);
    } else {
      lists.labels.push_back(example.label);
    }
  }
  Dataset dataset(std::move(lists));
  dataset.warnings = std::move(examples.warnings);
  if (part.split == Split::kTest) {
    auto source = std::make_shared<RowIndices>();
    source->indices = std::move(examples.indices);
    dataset.source = std::move(source);
  }
  return dataset;
}

Scores SentenceTask::score(const DataPart& part, std::span<const float> logits,
                           const Dataset& dataset) const {
  TW_CHECK(logits.size() == dataset.size() * static_cast<std::size_t>(num_labels()),
           "{} logits for {} examples", logits.size(), dataset.size());
  const std::vector<std::int32_t> predictions =
      is_regression() ? std::vector<std::int32_t>() : predictions_of(logits, num_labels());
  Scores scores;
  if (dataset.has_labels()) {
    scores.metrics = is_regression() ? metrics_of(logits, dataset.values)
                                     : metrics_of(predictions, dataset.labels);
  }
  if (part.split == Split::kTest) {
    scores.prediction_files = prediction_files(part, logits, predictions, dataset);
  }
  return scores;
}

// `predictions`: label ids; empty for a regression.
std::map<std::string, std::string> SentenceTask::prediction_files(
    const DataPart& part, std::span<const float> logits, std::span<const std::int32_t> predictions,
    const Dataset& dataset) const {
  const auto* source = dynamic_cast<const RowIndices*>(dataset.source.get());
  TW_CHECK(source != nullptr && source->indices.size() == dataset.size(),
           "the data set is not one of a test split");
  const Submission submission = this->submission(part);
  std::string results = "index\tprediction\n";
  std::string submitted = results;
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    const std::int64_t index = source->indices[i];
    if (is_regression()) {
      results += fmt::format("{}\t{:.3f}\n", i, logits[i]);
      submitted += fmt::format("{}\t{:.3f}\n", index, std::clamp(logits[i], 0.0F, 5.0F));
      continue;
    }
    const auto label = static_cast<std::size_t>(predictions[i]);
    results += fmt::format("{}\t{}\n", i, label_names_[label]);
    if (submission.file.empty()) continue;
    submitted += fmt::format("{}\t{}\n", index, submission.labels.at(label));
  }
  std::map<std::string, std::string> files;
  files[fmt::format("predict_results_{}.txt", result_name(part))] = std::move(results);
  if (!submission.file.empty()) files[submission.file] = std::move(submitted);
  return files;
}

std::vector<Baseline> SentenceTask::baselines(const std::filesystem::path& data_dir,
                                              std::size_t max_samples) const {
  if (!has_rows({Split::kTrain}, data_dir) || !has_rows({Split::kDev}, data_dir)) return {};
  const std::vector<Example> train = read_examples({Split::kTrain}, data_dir, 0).rows;
  const std::vector<Example> dev = read_examples({Split::kDev}, data_dir, max_samples).rows;
  if (is_regression()) {
    // A constant has no correlation with anything.
    if (metrics_ != std::vector{TaskMetric::kMeanSquaredError}) return {};
    std::vector<float> values;
    values.reserve(dev.size());
    for (const Example& example : dev) values.push_back(example.value);
    return {{"mean", metrics_of(mean_value(train, dev), values)}};
  }
  std::vector<std::int32_t> labels;
  labels.reserve(dev.size());
  for (const Example& example : dev) labels.push_back(example.label);
  std::vector<Baseline> found = {{"majority", metrics_of(majority_class(train, dev), labels)}};
  if (is_pair_ && num_labels() == 2) {
    found.push_back({"word overlap", metrics_of(overlap_rule(train, dev), labels)});
  }
  return found;
}

Metrics SentenceTask::metrics_of(std::span<const std::int32_t> predictions,
                                 std::span<const std::int32_t> labels) const {
  return score_all(metrics_, predictions, labels);
}

Metrics SentenceTask::metrics_of(std::span<const float> predictions,
                                 std::span<const float> values) const {
  return score_all(metrics_, predictions, values);
}

float number_of(const RowSource& source, std::string_view column, const Value& value) {
  float number = 0;
  const std::string_view text = number_text(value);
  const std::errc error = std::from_chars(text.data(), text.data() + text.size(), number).ec;
  if (!is_number(value) || error != std::errc() || !std::isfinite(number)) {
    source.fail(
        fmt::format("the {} is {}, expected a finite number", column, quoted_excerpt(value.text)));
  }
  if (!std::isfinite(number * number)) {
    source.fail(
        fmt::format("the {} is {}, whose square is infinite in fp32, expected a number from "
                    "-1.8e19 to 1.8e19",
                    column, quoted_excerpt(value.text)));
  }
  return number;
}

std::string_view sentence_of(const RowSource& source, std::string_view column, const Value& value) {
  if (value.kind == ValueKind::kField || value.kind == ValueKind::kString) return value.text;
  source.fail(fmt::format("the column {} is {}, expected a string", quoted_excerpt(column),
                          value.kind == ValueKind::kMissing ? "missing" : excerpt(value.text)));
}

}  // namespace tilewright::tasks::sentences
