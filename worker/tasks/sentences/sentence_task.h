// What the tasks of one sentence or a pair of sentences share: features, metrics, predictions and
// baselines. Their subclasses say where the rows come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/contract/tasks.h"
#include "worker/tasks/rows/rows.h"
#include "worker/tasks/sentences/baselines.h"
#include "worker/tasks/task.h"

namespace tilewright::tasks::sentences {

// The rows of a part as text.
struct Examples {
  std::vector<Example> rows;
  std::vector<std::int64_t> indices;  // of the rows in the file, from 0, without skipped rows
  std::vector<std::string> warnings;
};

class SentenceTask : public Task {
 public:
  const std::string& name() const override { return name_; }
  const std::vector<std::string>& label_names() const override { return label_names_; }
  nn::Head head() const override {
    return label_names_.empty() ? nn::Head::kRegression : nn::Head::kClassification;
  }
  int num_labels() const override {
    return label_names_.empty() ? 1 : static_cast<int>(label_names_.size());
  }

  // The rows of kTest have no labels.
  Dataset read(const DataPart& part, const text::Tokenizer& tokenizer,
               const ReadOptions& options) const override;
  // As in run_glue: several metrics are followed by their mean, combined_score. kTest has the files
  // predict_results_TASK.txt of run_glue and the file of GLUE's submission.
  Scores score(const DataPart& part, std::span<const float> logits,
               const Dataset& dataset) const override;
  // Empty if there are no training rows.
  std::vector<Baseline> baselines(const std::filesystem::path& data_dir,
                                  std::size_t max_samples) const override;

 protected:
  // `label_names`: empty for a regression.
  SentenceTask(std::string name, std::vector<std::string> label_names, bool is_pair,
               std::vector<TaskMetric> metrics);

  bool is_pair() const { return is_pair_; }
  bool is_regression() const { return label_names_.empty(); }

  // At most max_rows rows, all if it is 0; at least one. Throws Failure(kData).
  virtual Examples read_examples(const DataPart& part, const std::filesystem::path& data_dir,
                                 std::size_t max_rows) const = 0;
  virtual bool has_rows(const DataPart& part, const std::filesystem::path& data_dir) const = 0;

  // The part of predict_results_TASK.txt's name.
  virtual std::string result_name(const DataPart& part) const = 0;
  struct Submission {
    std::string file;                 // empty: there is none
    std::vector<std::string> labels;  // what it has for each label id; unused for a regression
  };
  virtual Submission submission(const DataPart&) const { return {}; }

 private:
  Metrics metrics_of(std::span<const std::int32_t> predictions,
                     std::span<const std::int32_t> labels) const;
  Metrics metrics_of(std::span<const float> predictions, std::span<const float> values) const;
  std::map<std::string, std::string> prediction_files(const DataPart& part,
                                                      std::span<const float> logits,
                                                      std::span<const std::int32_t> predictions,
                                                      const Dataset& dataset) const;

  const std::string name_;
  const std::vector<std::string> label_names_;
  const bool is_pair_;
  const std::vector<TaskMetric> metrics_;
};

// A label of a regression, whose square is finite too, or the loss would be infinite. Fails at the
// current row of `source` otherwise.
float number_of(const RowSource& source, std::string_view column, const Value& value);

// A sentence: a string, or a field of a text file. Fails at the current row of `source` otherwise.
std::string_view sentence_of(const RowSource& source, std::string_view column, const Value& value);

}  // namespace tilewright::tasks::sentences
