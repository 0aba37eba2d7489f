#include "controller/cli/crd.h"

#include <iostream>
#include <memory>

#include "common/contract/labels.h"
#include "controller/api/crd.h"

namespace tilewright {

void add_crd_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("crd", "Print the CustomResourceDefinition of a kind as YAML");
  auto kind = std::make_shared<std::string>(kTrainJobKind);
  command
      ->add_option(
          "--kind", *kind,
          "Kind of the CRD; PyTorchJob is for clusters without Kubeflow's training operator")
      ->transform(CLI::IsMember({kTrainJobKind, kPyTorchJobKind}, CLI::ignore_case))
      ->capture_default_str();
  command->callback([kind] {
    std::cout << (*kind == kTrainJobKind ? api::trainjob_crd_yaml() : api::pytorchjob_crd_yaml());
  });
}

}  // namespace tilewright
