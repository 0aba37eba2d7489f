// Credentials from an exec plugin of a kubeconfig (client.authentication.k8s.io). The plugin runs
// without a shell and with a deadline. Its result is cached until it expires.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "controller/client/credentials.h"

namespace tilewright::kube {

struct ExecPlugin {
  std::string api_version = "client.authentication.k8s.io/v1";  // or v1beta1
  std::filesystem::path program;                                // resolved path
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // added to the environment of this process
  nlohmann::json cluster;                          // for provideClusterInfo; null: not provided
  std::string where;  // prefix of error messages: "kubeconfig:12: users[0].user.exec"
  Duration deadline = std::chrono::seconds(60);
};

std::shared_ptr<Credentials> exec_credentials(ExecPlugin plugin);

struct ExecCredentialStatus {
  std::string token;  // empty: a certificate only
  std::optional<ClientCertificate> certificate;
  std::optional<WallTime> expires;  // absent: valid until a 401 response
};

// Parses the plugin's standard output. Error messages do not contain it.
Result<ExecCredentialStatus> parse_exec_credential(std::string_view text, const ExecPlugin& plugin);

// Resolves `command` of a kubeconfig: relative to `directory` if it contains a slash, else in PATH.
Result<std::filesystem::path> resolve_command(const std::string& command,
                                              const std::filesystem::path& directory,
                                              std::string_view search_path,
                                              const std::string& where);

}  // namespace tilewright::kube
