// Jobs whose data are examples of given lengths, without a model and task.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/train/job.h"

namespace tilewright::train {

// Examples of these lengths to evaluate.
inline Job evaluation_job(const std::vector<std::int64_t>& lengths, std::int64_t batch,
                          std::int64_t padded_length = 0) {
  Job job;
  job.settings.do_train = false;
  job.settings.do_eval = true;
  job.settings.per_device_eval_batch_size = batch;
  job.padding.length = padded_length;
  tasks::DatasetLists lists;
  for (const std::int64_t length : lengths) {
    const auto tokens = static_cast<std::size_t>(length);
    lists.append({.ids = std::vector<std::int32_t>(tokens), .first_segment = tokens});
  }
  job.evaluation_sets.push_back(
      {.part = {tasks::Split::kDev, 0}, .suffix = "", .data = tasks::Dataset(std::move(lists))});
  return job;
}

// A training on examples of these lengths.
inline Job training_job(const std::vector<std::int64_t>& lengths, const nn::Padding& padding) {
  Job job = evaluation_job(lengths, 1);
  job.train_data = std::move(job.evaluation_sets.front().data);
  job.evaluation_sets.clear();
  job.settings.do_train = true;
  job.settings.do_eval = false;
  job.settings.max_workers = job.settings.nominal_workers = 1;
  job.settings.per_device_train_batch_size = 3;
  job.settings.virtual_shards = 2;
  job.settings.global_batch = 8;
  job.padding = padding;
  return job;
}

}  // namespace tilewright::train
