// Reads tensors from a safetensors file.
#pragma once

#include "worker/checkpoint/safetensors_header.h"
#include "worker/checkpoint/weight_source.h"

namespace tilewright::checkpoint {

class SafetensorsFile : public WeightSource {
 public:
  // Throws Failure with `code`.
  explicit SafetensorsFile(const std::filesystem::path& path, ExitCode code = ExitCode::kWeights)
      : WeightSource(path, code) {
    add_file(path, parse_safetensors);
  }
};

}  // namespace tilewright::checkpoint
