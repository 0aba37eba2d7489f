// All that a training reads before it starts, and that does not change while it runs: task, data,
// the model's sizes. Every worker reads the same.
#pragma once

#include <memory>
#include <string>

#include "common/base/log.h"
#include "worker/checkpoint/model_config.h"
#include "worker/nn/batch.h"
#include "worker/nn/bert_config.h"
#include "worker/tasks/task.h"
#include "worker/train/schedule.h"
#include "worker/train/settings.h"

namespace tilewright::train {

struct Job {
  Settings settings;
  std::string uid;
  std::unique_ptr<const tasks::Task> task;
  tasks::Dataset train_data, dev_data;  // empty where there is no training or no evaluation
  checkpoint::ModelConfig model;        // config.json with the task's labels and the flags' dropout
  nn::Padding padding;                  // none without --pad_to_max_length
  Schedule schedule;
  // settings' fingerprint with digests of data and starting weights: equal on all workers.
  nlohmann::json fingerprint;
};

// The head, which a model that was only pre-trained lacks: then it is drawn anew.
inline bool may_be_missing(const std::string& tensor) {
  return tensor.starts_with("classifier.") || tensor.starts_with("bert.pooler.");
}

// Throws Failure: kModel, kWeights, kData or kUsage with one sentence.
Job load_job(const Settings& settings, const std::string& uid, Logger& log);

}  // namespace tilewright::train
