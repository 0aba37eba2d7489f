// Files of a checkpoint and of a model directory.
#pragma once

namespace tilewright::checkpoint {

inline constexpr const char* kModelFile = "model.safetensors";

}  // namespace tilewright::checkpoint
