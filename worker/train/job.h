// The input of a training, read before it starts: settings, task, data and the sizes of the model.
// All workers read the same. Constant afterwards, except through set_instruction_set() and
// adopt_output(), which the run calls before an epoch trains.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/parameters.h"
#include "worker/nn/batch.h"
#include "worker/nn/encoder_config.h"
#include "worker/runtime/cpu.h"
#include "worker/tasks/rows/tables.h"
#include "worker/tasks/task.h"
#include "worker/train/feature_cache.h"
#include "worker/train/schedule.h"
#include "worker/train/settings.h"

namespace tilewright::train {

// The instruction set in Job::fingerprint.
inline constexpr const char* kInstructionSetSetting = "instruction_set";

// The examples of one file that the model is evaluated on, or whose labels it predicts.
struct EvaluationSet {
  tasks::DataPart part;
  std::string suffix;  // of the names of its metrics: "" or "_mm"
  tasks::Dataset data;
};

struct Job {
  Settings settings;  // max_seq_length is at most that of the model and its tokenizer
  std::string uid;
  std::unique_ptr<const tasks::Task> task;
  tasks::Dataset train_data;                   // empty without do_train
  std::vector<EvaluationSet> evaluation_sets;  // empty without do_eval
  std::vector<EvaluationSet> prediction_sets;  // empty without do_predict
  checkpoint::ModelConfig model;  // config.json with the task's labels and the flags' dropout
  // For the output of a training, whatever happens to the files meanwhile; by file name.
  std::map<std::string, std::string> tokenizer_files;
  nn::Padding padding;  // length 0 without --pad_to_max_length
  Schedule schedule;
  // The starting weights, mapped for the whole run: a file that replaces them later has no effect.
  std::unique_ptr<const checkpoint::WeightSource> weights;
  // Tensors of the head that are initialised at random, and tensors that are not used.
  checkpoint::ParameterDifferences weight_differences;
  // All that determines the weights: the settings' fingerprint, the digests of data and starting
  // weights, the version of the kernels and, if the training is exact, the instruction set, once it
  // is known. Equal on all workers, and in a checkpoint and the training that resumes from it.
  nlohmann::json fingerprint;
  // What else all workers must have alike, because they evaluate and predict together: those
  // settings, and the digests of the data. Neither in checkpoints nor in the UID.
  nlohmann::json evaluation_fingerprint;

  // The training computes with `isa`, which determines the data type if the settings leave it open.
  // The fingerprint of an exact training has both.
  void set_instruction_set(runtime::Isa isa);
  // The training writes to this directory, as the job with this UID.
  void adopt_output(std::string directory, std::string output_uid);
};

// Where the tokenizer is read from.
inline const std::string& tokenizer_directory(const Settings& settings) {
  return settings.tokenizer_name.empty() ? settings.model_name_or_path : settings.tokenizer_name;
}

// Maps the model's weights, checks all tensors and their elements, and adds their digest to the
// fingerprint. Failures have kWeights.
// `pool`: see JobSources.
void open_starting_weights(Job& job, runtime::ThreadPool* pool = nullptr);

// A Failure (kWeights) if the content of the mapped starting weights has changed since load_job(),
// so that training from it would give other bits.
void check_weights_unchanged(const Job& job, runtime::ThreadPool* pool = nullptr);

// Where the input comes from, besides the flags.
struct JobSources {
  std::unique_ptr<const tasks::Task> task;          // null: that of task_name and the files
  std::shared_ptr<const tasks::DataTables> tables;  // null: the data are in files
  runtime::ThreadPool* pool = nullptr;              // reads on its threads; null: on this thread
  const FeatureCache* features = nullptr;           // of the training data; null: none
  // Called with the name of each part of load_job() at its end, to measure them; may be empty.
  std::function<void(std::string_view)> end_part = {};
};

// The names of models in `settings` are resolved. `uid`: the job's UID from the environment; if
// empty, one is derived from the fingerprint. Throws Failure (kModel, kWeights, kData or kUsage).
Job load_job(const Settings& settings, const std::string& uid, JobSources sources = {});

}  // namespace tilewright::train
