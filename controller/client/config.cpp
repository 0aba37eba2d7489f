#include "controller/client/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/strings.h"
#include "controller/client/kubeconfig.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

// The service account of the pod that this process runs in.
Result<ClusterConfig> in_cluster_config(const ConfigSources& sources) {
  if (sources.service_host.empty() || sources.service_port.empty()) {
    return usage_error(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set in a pod");
  }
  ClusterConfig config;
  config.source = "the pod's service account";
  // cpprestsdk cannot connect to a literal IPv6 address. The API server's certificate and the
  // cluster's DNS always contain the name kubernetes.default.svc.
  const bool v6 = sources.service_host.find(':') != std::string::npos;
  config.server = fmt::format("https://{}:{}", v6 ? "kubernetes.default.svc" : sources.service_host,
                              sources.service_port);
  config.tls.authorities.file = sources.service_account / "ca.crt";
  auto credentials = token_file(sources.service_account / "token");
  if (!credentials) return credentials.error();
  config.credentials = std::move(credentials).value();
  auto name = read_file(sources.service_account / "namespace", 4096, ExitCode::kUsage);
  if (name) config.default_namespace = *name;
  return config;
}

}  // namespace

ConfigSources config_sources_from_environment() {
  ConfigSources sources;
  sources.kubeconfig_list = environment_variable("KUBECONFIG");
  sources.home = environment_variable("HOME");
  sources.search_path = environment_variable("PATH");
  sources.service_host = environment_variable("KUBERNETES_SERVICE_HOST");
  sources.service_port = environment_variable("KUBERNETES_SERVICE_PORT");
  return sources;
}

Result<ClusterConfig> load_config(const ConfigSources& sources) {
  if (!sources.kubeconfig.empty()) return config_from_kubeconfig({sources.kubeconfig}, sources);
  if (!sources.kubeconfig_list.empty()) {
    std::vector<fs::path> files;
    std::string_view list = sources.kubeconfig_list;
    while (!list.empty()) {
      const auto colon = std::min(list.find(':'), list.size());
      // Like kubectl: skip files that do not exist.
      if (const fs::path file = list.substr(0, colon); !file.empty() && fs::exists(file)) {
        files.push_back(file);
      }
      list.remove_prefix(std::min(colon + 1, list.size()));
    }
    if (files.empty()) {
      return usage_error(fmt::format("KUBECONFIG is {}: no such file", sources.kubeconfig_list));
    }
    return config_from_kubeconfig(files, sources);
  }
  if (!sources.service_host.empty() && sources.context.empty()) return in_cluster_config(sources);
  const fs::path home_config = fs::path(sources.home) / ".kube" / "config";
  if (!sources.home.empty() && fs::exists(home_config)) {
    return config_from_kubeconfig({home_config}, sources);
  }
  if (!sources.context.empty()) {
    return usage_error(fmt::format(
        "found no kubeconfig for the context {}: KUBECONFIG is not set, {} does not exist",
        sources.context, home_config.string()));
  }
  return usage_error(fmt::format(
      "found no cluster configuration: KUBECONFIG is not set, {} does not exist, and this process "
      "does not run in a pod (KUBERNETES_SERVICE_HOST is not set)",
      home_config.string()));
}

}  // namespace tilewright::kube
