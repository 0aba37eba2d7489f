// Chooses the source, and reads a pod's.
#include "controller/kube/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/files.h"
#include "common/base/text.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

Error wrong(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

}  // namespace

ConfigSources config_sources_of_environment() {
  ConfigSources sources;
  sources.kubeconfig_list = environment_variable("KUBECONFIG");
  sources.home = environment_variable("HOME");
  sources.search_path = environment_variable("PATH");
  sources.service_host = environment_variable("KUBERNETES_SERVICE_HOST");
  sources.service_port = environment_variable("KUBERNETES_SERVICE_PORT");
  return sources;
}

Result<ClusterConfig> load_config(const ConfigSources& sources) {
  if (!sources.kubeconfig.empty()) return kubeconfig_config({sources.kubeconfig}, sources);
  if (!sources.kubeconfig_list.empty()) {
    std::vector<fs::path> files;
    std::string_view list = sources.kubeconfig_list;
    while (!list.empty()) {
      const auto colon = std::min(list.find(':'), list.size());
      // As kubectl does it: of the listed files those that are there.
      if (const fs::path file = list.substr(0, colon); !file.empty() && fs::exists(file)) {
        files.push_back(file);
      }
      list.remove_prefix(std::min(colon + 1, list.size()));
    }
    if (files.empty()) {
      return wrong(fmt::format("KUBECONFIG is {}: found no such file", sources.kubeconfig_list));
    }
    return kubeconfig_config(files, sources);
  }
  if (!sources.service_host.empty()) return in_cluster_config(sources);
  const fs::path own = fs::path(sources.home) / ".kube" / "config";
  if (!sources.home.empty() && fs::exists(own)) return kubeconfig_config({own}, sources);
  return wrong(fmt::format(
      "found no cluster: KUBECONFIG is not set, {} is not there, and this is no pod of one "
      "(KUBERNETES_SERVICE_HOST is not set)",
      own.string()));
}

Result<ClusterConfig> in_cluster_config(const ConfigSources& sources) {
  if (sources.service_host.empty() || sources.service_port.empty()) {
    return wrong("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set in a pod");
  }
  ClusterConfig config;
  config.source = "the pod's service account";
  // cpprestsdk cannot connect to a literal IPv6 address; the API server's certificate and the
  // cluster's DNS always have this name as well.
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

}  // namespace tilewright::kube
