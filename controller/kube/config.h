// Where the API server is, whom to trust there and who we are: from a kubeconfig or from the pod.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "controller/kube/credentials.h"
#include "controller/kube/tls.h"

namespace tilewright::kube {

struct ClusterConfig {
  std::string server;  // https://host:port, and a path where a proxy stands before the cluster
  TlsSettings tls;
  std::shared_ptr<Credentials> credentials;
  std::string default_namespace = "default";
  std::string source;  // for people: "context kind-dev of /home/me/.kube/config"
};

// What a program was told and what surrounds it; nothing else is read.
struct ConfigSources {
  std::string kubeconfig;       // --kubeconfig; empty: not given
  std::string context;          // --context; empty: the file's current one
  bool allow_insecure = false;  // whether insecure-skip-tls-verify is honoured, else it is refused
  std::string kubeconfig_list;  // $KUBECONFIG: paths with colons between them
  std::string home;             // $HOME
  std::string search_path;      // $PATH, for plugins
  std::string service_host;     // $KUBERNETES_SERVICE_HOST
  std::string service_port;     // $KUBERNETES_SERVICE_PORT
  std::filesystem::path service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};
ConfigSources config_sources_of_environment();

// In this order: --kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config. Errors carry
// kUsage and name file, line and field; no sentence holds a secret.
Result<ClusterConfig> load_config(const ConfigSources& sources);

// The two ways, for load_config and for tests.
Result<ClusterConfig> in_cluster_config(const ConfigSources& sources);
Result<ClusterConfig> kubeconfig_config(const std::vector<std::filesystem::path>& files,
                                        const ConfigSources& sources);

}  // namespace tilewright::kube
