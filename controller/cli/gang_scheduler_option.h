// --gang_scheduler_name of `tilewright controller` and `tilewright render`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tilewright {

// Adds the option, also with the spelling of Kubeflow's operator. `gang_scheduler` becomes the name
// of controller/cluster/gang_scheduler.h and must outlive the parse.
void add_gang_scheduler_option(CLI::App& command, std::string& gang_scheduler);

}  // namespace tilewright
