// Credentials from a program that a kubeconfig names (client.authentication.k8s.io): run without a
// shell and with a deadline, its answer kept until it expires.
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
#include "controller/kube/credentials.h"

namespace tilewright::kube {

struct ExecPlugin {
  std::string api_version = "client.authentication.k8s.io/v1";  // or v1beta1
  std::filesystem::path program;                                // found already
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // over this process's own
  nlohmann::json cluster;  // what provideClusterInfo hands over; null: nothing
  std::string where;       // "kubeconfig:12: users[0].user.exec": begins every sentence
  Duration deadline = std::chrono::seconds(60);
};

std::shared_ptr<Credentials> exec_credentials(ExecPlugin plugin);

struct ExecAnswer {
  std::string token;  // empty: a certificate only
  std::optional<ClientCertificate> certificate;
  std::optional<WallTime> expires;  // absent: good until it is refused
};

// Of the plugin's standard output. No sentence holds any of it.
Result<ExecAnswer> parse_exec_answer(std::string_view text, const ExecPlugin& plugin);

// The program of a kubeconfig's `command`: with a slash relative to `folder`, else along PATH.
Result<std::filesystem::path> find_program(const std::string& command,
                                           const std::filesystem::path& folder,
                                           std::string_view search_path, const std::string& where);

}  // namespace tilewright::kube
