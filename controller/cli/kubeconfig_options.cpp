#include "controller/cli/kubeconfig_options.h"

namespace tilewright {

std::vector<CLI::Option*> add_kubeconfig_options(CLI::App& command, KubeconfigOptions& options) {
  return {command.add_option("--kubeconfig", options.kubeconfig,
                             "Path of the kubeconfig; default: $KUBECONFIG, then the pod's service "
                             "account, then ~/.kube/config"),
          command.add_option("--context", options.context,
                             "Context of the kubeconfig; default: current-context"),
          command.add_flag("--allow_insecure", options.allow_insecure,
                           "Allow insecure-skip-tls-verify in the kubeconfig")};
}

kube::ConfigSources config_sources(const KubeconfigOptions& options) {
  kube::ConfigSources sources = kube::config_sources_from_environment();
  sources.kubeconfig = options.kubeconfig;
  sources.context = options.context;
  sources.allow_insecure = options.allow_insecure;
  return sources;
}

}  // namespace tilewright
