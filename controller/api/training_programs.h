// How a container is recognized that was pasted from a PyTorchJob or a Hugging Face script.
#pragma once

#include <array>
#include <string_view>

namespace tilewright::api {

// A PyTorchJob requires this name of its container.
inline constexpr const char* kPyTorchContainer = "pytorch";
// Parts of the command line of a training.
inline constexpr std::array<std::string_view, 4> kTrainingPrograms = {
    "torchrun", "torch.distributed", "run_qa.py", "run_glue.py"};

inline constexpr const char* kNoOtherTraining =
    "expected no training beside the worker's: put its flags into spec.trainer";

}  // namespace tilewright::api
