#include "controller/cli/crd.h"

#include <iostream>

#include "controller/api/crd.h"

namespace tilewright {

void add_crd_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("crd", "Print the CustomResourceDefinition of TrainJob as YAML");
  command->callback([] { std::cout << api::trainjob_crd_yaml(); });
}

}  // namespace tilewright
