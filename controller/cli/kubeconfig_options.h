// --kubeconfig, --context and --allow_insecure of the subcommands that connect to a cluster.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "controller/client/config.h"

namespace tilewright {

// The defaults are those of kubectl.
struct KubeconfigOptions {
  std::string kubeconfig;
  std::string context;
  bool allow_insecure = false;  // accept insecure-skip-tls-verify in the kubeconfig
};

// Adds the options and returns them. Both arguments must outlive the parse.
std::vector<CLI::Option*> add_kubeconfig_options(CLI::App& command, KubeconfigOptions& options);

// The options, with what the environment sets.
kube::ConfigSources config_sources(const KubeconfigOptions& options);

}  // namespace tilewright
