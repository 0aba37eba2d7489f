// A file with the lists of a data set, which is mapped instead of read. Its format is safetensors,
// with a tensor for each list.
#pragma once

#include <cstdint>
#include <filesystem>

#include "worker/nn/head.h"
#include "worker/tasks/dataset.h"

namespace tilewright::tasks {

// Writes the lists and warnings of `data` and their digest, without its source. As
// checkpoint::write_safetensors().
void write_dataset(const std::filesystem::path& path, const Dataset& data);

// What a data set must satisfy so that a model can be trained with it.
struct DatasetLimits {
  nn::Head head = nn::Head::kClassification;
  std::int64_t num_labels = 2;  // of a classification
  std::int64_t max_seq_length = 128;
};

// Maps a file that write_dataset() wrote; on a network file system, where another host can take it
// away, reads it. Token ids are not checked, see check_ids(). Throws Failure(kData) unless the
// lists have their digest, belong together and satisfy `limits`.
Dataset open_dataset(const std::filesystem::path& path, const DatasetLimits& limits);

}  // namespace tilewright::tasks
