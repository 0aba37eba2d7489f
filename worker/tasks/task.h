// The interface of a task: how to read its data and how to score predictions. make_task()
// (registry.h) makes one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/dataset.h"
#include "worker/tasks/metrics.h"
#include "worker/tasks/question_answering_options.h"
#include "worker/text/tokenizer.h"

namespace tilewright::tasks {

enum class Split { kTrain, kDev, kTest };

// A file of examples. Most tasks have one part per split; MNLI is evaluated on two.
struct DataPart {
  Split split = Split::kTrain;
  std::size_t part = 0;
};

struct ReadOptions {
  std::filesystem::path data_dir;    // holds the files that file_name names
  std::size_t max_seq_length = 128;  // at least Task::least_length().tokens
  std::size_t max_samples = 0;       // read the first N rows only; 0: all
  QuestionAnsweringOptions question_answering = {};
  runtime::ThreadPool* pool = nullptr;  // converts text to tokens; null: this thread
};

// The least --max_seq_length of a task.
struct LeastLength {
  std::size_t tokens;
  std::string_view use;  // what takes them, for messages: "[CLS] and two [SEP]"
};

// The metrics of a rule without a model on the dev split.
struct Baseline {
  std::string name;
  Metrics metrics;
};

// What a task makes of the outputs of the model.
struct Scores {
  Metrics metrics = {};  // empty if the data set has no labels
  // The files with the predictions that are written after an evaluation (kDev) or a prediction
  // (kTest): name -> content.
  std::map<std::string, std::string> prediction_files = {};
};

// Immutable; any number of threads may use one.
class Task {
 public:
  virtual ~Task() = default;

  // As in --task_name: "mrpc".
  virtual const std::string& name() const = 0;
  // In the order of their ids, for config.json's id2label; empty for a regression.
  virtual const std::vector<std::string>& label_names() const = 0;
  virtual nn::Head head() const { return nn::Head::kClassification; }
  // Outputs of the model's head per row of logits; 1 for a regression, 2 for question answering.
  virtual int num_labels() const = 0;

  virtual LeastLength least_length() const { return {3, "[CLS] and two [SEP]"}; }

  virtual std::size_t parts(Split) const { return 1; }
  // Distinguishes the parts of a split in the names of metrics and files: "" or "mm".
  virtual std::string part_name(const DataPart&) const { return ""; }
  // Relative to the data directory: "train.tsv".
  virtual std::string file_name(const DataPart& part) const = 0;

  // The files from which read() takes the examples of a part; empty if they are not in files.
  virtual std::vector<std::filesystem::path> input_files(
      const DataPart& /*part*/, const std::filesystem::path& /*data_dir*/) const {
    return {};
  }

  // What the task has found in the user's own files, for the log: the columns and the kind of
  // training, and what may be a mistake, one sentence each. Empty if its files have a fixed layout.
  virtual std::string layout() const { return ""; }
  virtual std::vector<std::string> layout_warnings() const { return {}; }

  // Throws Failure with ExitCode::kData; the message names the file, the line, what was found and
  // what was expected.
  virtual Dataset read(const DataPart& part, const text::Tokenizer& tokenizer,
                       const ReadOptions& options) const = 0;

  // `logits`: [rows, num_labels] in the order of the dataset. A row is an example, or a token for
  // question answering. Training splits are not scored.
  virtual Scores score(const DataPart& part, std::span<const float> logits,
                       const Dataset& dataset) const = 0;

  // Scored on the first max_samples rows of the dev split (0: all) with rules taken from the
  // training split; empty where none is defined. Reads both files, and fails as read does.
  virtual std::vector<Baseline> baselines(const std::filesystem::path& /*data_dir*/,
                                          std::size_t /*max_samples*/) const {
    return {};
  }

 protected:
  Task() = default;
  Task(const Task&) = default;
  Task& operator=(const Task&) = default;
};

}  // namespace tilewright::tasks
