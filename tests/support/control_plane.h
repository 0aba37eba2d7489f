// A real Kubernetes control plane on this machine: etcd and kube-apiserver, as .ci/control-plane
// finds or builds them, on free ports of 127.0.0.1. No scheduler, no controllers, no node.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/process/child_process.h"
#include "tests/support/certificates.h"
#include "tests/support/https_client.h"
#include "tests/support/run_command.h"

namespace tilewright::testing {

// Somebody whom the API server knows by a bearer token.
struct ApiUser {
  std::string name;
  std::string token;
  std::vector<std::string> groups;
};

struct ControlPlaneOptions {
  std::vector<ApiUser> users;
  std::vector<std::string> api_server_flags;  // the last one of a name wins
};

class ControlPlane {
 public:
  // Which of the programs that it needs is missing here, with what to do; empty: none is.
  static std::string missing();
  // The same of others that .ci/control-plane builds.
  static std::string missing(const std::vector<std::string>& programs);

  // Returns when the API server is ready, within seconds. Whatever it started dies with the calling
  // thread. Throws std::runtime_error naming the logs when something does not start.
  explicit ControlPlane(ControlPlaneOptions options = {});
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  const std::string& url() const { return url_; }
  const std::filesystem::path& authority() const { return authority_->certificate(); }
  // A client certificate of the group system:masters.
  const CertificatePaths& admin_certificate() const { return admin_certificate_; }
  // For the administrator.
  const std::filesystem::path& kubeconfig() const { return kubeconfig_; }
  // For one of the users.
  std::filesystem::path kubeconfig_for(const ApiUser& user);
  // A client certificate for somebody new.
  CertificatePaths issue_client(const std::string& user, const std::vector<std::string>& groups) {
    return authority_->issue_client(user, groups);
  }
  // etcd.log, kube-apiserver.log, data and keys.
  const std::filesystem::path& folder() const { return folder_; }
  // Leaves the folder on disk, for somebody to read the logs.
  void keep_folder() { keep_folder_ = true; }

  // As the administrator.
  HttpsClient& admin() { return *admin_; }
  std::unique_ptr<HttpsClient> client(Credentials credentials) const;
  // Gives the user these rules (of RBAC: apiGroups, resources, verbs) in every namespace, and
  // returns when they are in force.
  void grant(const std::string& user, const nlohmann::json& rules);
  // kubectl as the administrator.
  CommandOutcome kubectl(const std::vector<std::string>& arguments) const;

  // Another of .ci/control-plane's programs, its output in NAME.log of the folder.
  ChildProcess start(const std::string& program, const std::vector<std::string>& arguments) const;

  pid_t etcd_pid() const { return etcd_->pid(); }
  pid_t api_server_pid() const { return api_server_->pid(); }
  // As a crash: SIGKILL. Connections break, what was acknowledged stays in etcd.
  void kill_api_server();
  // On the same port with the same data; returns when it is ready.
  void start_api_server();

 private:
  void start_etcd();
  struct Grant {
    std::string user;
    nlohmann::json rules;
  };
  // Until a GET of the path succeeds.
  void await(const std::string& path);
  // Until `look` says true; it also says what it saw, for the complaint.
  void await(const std::string& complaint,
             const std::function<std::pair<bool, std::string>()>& look);
  void await_granted(const Grant& grant);
  // Throws if one of the two has ended.
  void require_alive();
  [[noreturn]] void fail(const std::string& what);

  ControlPlaneOptions options_;
  std::vector<Grant> grants_;
  std::filesystem::path programs_;
  std::filesystem::path folder_;
  bool keep_folder_ = false;
  int etcd_port_ = 0;
  int etcd_peer_port_ = 0;
  int api_port_ = 0;
  std::string url_;
  std::unique_ptr<CertificateAuthority> authority_;
  CertificatePaths admin_certificate_;
  std::filesystem::path kubeconfig_;
  std::unique_ptr<HttpsClient> admin_;
  std::optional<ChildProcess> etcd_;
  std::optional<ChildProcess> api_server_;
};

}  // namespace tilewright::testing
