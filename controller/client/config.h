// Connection settings for the API server (address, CA, credentials), read from a kubeconfig or from
// the pod's service account.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "controller/client/credentials.h"
#include "controller/client/tls.h"

namespace tilewright::kube {

struct ClusterConfig {
  std::string server;  // https://host:port, with a path if the cluster is behind a proxy
  TlsSettings tls;
  std::shared_ptr<Credentials> credentials;
  std::string default_namespace = "default";
  std::string source;  // for log messages: "context kind-dev of /home/me/.kube/config"
};

// Flags and environment variables that select the configuration. Nothing else is read.
struct ConfigSources {
  std::string kubeconfig;       // --kubeconfig; empty: not set
  std::string context;          // --context; empty: current-context of the file
  bool allow_insecure = false;  // accept insecure-skip-tls-verify; otherwise it is an error
  std::string kubeconfig_list;  // $KUBECONFIG: paths separated by colons
  std::string home;             // $HOME
  std::string search_path;      // $PATH, to find exec plugins
  std::string service_host;     // $KUBERNETES_SERVICE_HOST
  std::string service_port;     // $KUBERNETES_SERVICE_PORT
  std::filesystem::path service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};
ConfigSources config_sources_from_environment();

// Uses the first of --kubeconfig, $KUBECONFIG, the pod's service account and ~/.kube/config. The
// service account has no contexts, so it is not used with --context. Errors have code kUsage, name
// file, line and field, and contain no secret.
Result<ClusterConfig> load_config(const ConfigSources& sources);

}  // namespace tilewright::kube
