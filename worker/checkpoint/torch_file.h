// Reads the tensors of a state dict that torch.save wrote, such as pytorch_model.bin. No code of
// the file is run; see pickle.h.
//
// Formats, both little-endian:
//   since torch 1.6: a ZIP archive NAME/data.pkl (the pickle), NAME/data/KEY (one per storage);
//   before, and with _use_new_zipfile_serialization=False: pickles of a magic number, the protocol
//   1001, a description of the machine, the state dict and the list of its storages' keys; then
//   each storage in the order of the keys: its number of elements in 8 bytes, and its elements.
// Source: torch/serialization.py.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "worker/checkpoint/weight_source.h"

namespace tilewright::checkpoint {

// `content` is the whole file; the result contains views into it. Throws Failure with `code`; the
// message names `path`.
FileTensors parse_torch_file(std::span<const std::byte> content, const std::filesystem::path& path,
                             ExitCode code);

class TorchFile : public WeightSource {
 public:
  // Throws Failure with `code`.
  explicit TorchFile(const std::filesystem::path& path, ExitCode code = ExitCode::kWeights)
      : WeightSource(path, code) {
    add_file(path, parse_torch_file);
  }
};

}  // namespace tilewright::checkpoint
