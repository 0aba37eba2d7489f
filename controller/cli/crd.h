// `tilewright crd`: prints the CustomResourceDefinition of TrainJob or PyTorchJob.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

void add_crd_command(CLI::App& app);

}  // namespace tilewright
