// The interface of a task: how to read its data and how to score predictions. find_task()
// (registry.h) creates one from its name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "worker/tasks/dataset.h"
#include "worker/tasks/metrics.h"
#include "worker/text/tokenizer.h"

namespace tilewright::tasks {

enum class Split { kTrain, kDev };

struct ReadOptions {
  std::filesystem::path data_dir;    // holds the files that file_name names
  std::size_t max_seq_length = 128;  // tokens with [CLS] and [SEP]; at least 3
  std::size_t max_samples = 0;       // read the first N rows only; 0: all
};

// The metrics of a rule without a model on the dev split.
struct Baseline {
  std::string name;
  Metrics metrics;
};

// Immutable; any number of threads may use one.
class Task {
 public:
  virtual ~Task() = default;

  // As in --task_name: "mrpc".
  virtual const std::string& name() const = 0;
  // In the order of their ids, for config.json's id2label; empty for a regression.
  virtual const std::vector<std::string>& label_names() const = 0;
  // Outputs of the model's head; 1 for a regression.
  virtual int num_labels() const = 0;
  virtual bool is_regression() const { return false; }

  // Relative to the data directory: "train.tsv".
  virtual std::string file_name(Split split) const = 0;

  // Throws Failure with ExitCode::kData and one sentence: file, line, what was found, what was
  // expected.
  virtual Dataset read(Split split, const text::Tokenizer& tokenizer,
                       const ReadOptions& options) const = 0;

  // `logits`: [dataset.size(), num_labels], row by row in the order of the dataset.
  virtual Metrics metrics(std::span<const float> logits, const Dataset& dataset) const = 0;

  // Scored on the dev split with rules taken from the training split; empty where none is defined.
  // Reads both files, and fails as read does.
  virtual std::vector<Baseline> baselines(const std::filesystem::path& data_dir) const = 0;

 protected:
  Task() = default;
  Task(const Task&) = default;
  Task& operator=(const Task&) = default;
};

}  // namespace tilewright::tasks
