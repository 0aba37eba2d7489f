// Reads weights that are split over several files, as save_pretrained(max_shard_size=...) writes
// them: an index NAME.index.json with {"weight_map": {TENSOR: FILE, ...}}, and the files next to
// it.
#pragma once

#include "worker/checkpoint/weight_source.h"

namespace tilewright::checkpoint {

inline constexpr std::size_t kMaxShards = 256;

class ShardedWeights : public WeightSource {
 public:
  // `parse` reads one file. Throws Failure with `code` if a file is not in the index's directory,
  // lacks a tensor that the index expects in it, or repeats one of another file. Tensors that the
  // index does not name are added like the others, as transformers does.
  ShardedWeights(const std::filesystem::path& index, ParseTensors parse,
                 ExitCode code = ExitCode::kWeights);
};

}  // namespace tilewright::checkpoint
