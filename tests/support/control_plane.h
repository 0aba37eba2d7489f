// A Kubernetes control plane on this machine: the etcd and kube-apiserver that .ci/control-plane
// finds or builds, on free ports of 127.0.0.1. No scheduler, no controllers, no node.
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

// A user that authenticates with a bearer token.
struct ApiUser {
  std::string name;
  std::string token;
  std::vector<std::string> groups;
};

struct ControlPlaneOptions {
  std::vector<ApiUser> users;
  std::vector<std::string> api_server_flags;  // the last value of a flag wins
};

class ControlPlane {
 public:
  // Names the required programs that are missing and how to get them; empty if none is missing.
  static std::string missing();
  // The same for other programs of .ci/control-plane.
  static std::string missing(const std::vector<std::string>& programs);

  // Returns when the API server is ready, which takes seconds. The processes die with the calling
  // thread. Throws std::runtime_error with the log paths if a program does not start.
  explicit ControlPlane(ControlPlaneOptions options = {});
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  const std::string& url() const { return url_; }
  const std::filesystem::path& authority() const { return authority_->certificate(); }
  // A client certificate of the group system:masters.
  const CertificatePaths& admin_certificate() const { return admin_certificate_; }
  // The kubeconfig of the administrator.
  const std::filesystem::path& kubeconfig() const { return kubeconfig_; }
  // The kubeconfig of one of the users.
  std::filesystem::path kubeconfig_for(const ApiUser& user);
  // A client certificate for a new user.
  CertificatePaths issue_client(const std::string& user, const std::vector<std::string>& groups) {
    return authority_->issue_client(user, groups);
  }
  // Contains etcd.log, kube-apiserver.log, data and keys.
  const std::filesystem::path& folder() const { return folder_; }
  // Keeps the folder, so that its logs can be read.
  void keep_folder() { keep_folder_ = true; }

  // A client with the administrator's permissions.
  HttpsClient& admin() { return *admin_; }
  std::unique_ptr<HttpsClient> client(Credentials credentials) const;
  // Grants the user these RBAC rules (apiGroups, resources, verbs) in all namespaces and returns
  // when they are effective.
  void grant(const std::string& user, const nlohmann::json& rules);
  // Runs kubectl as the administrator.
  CommandResult kubectl(const std::vector<std::string>& arguments) const;
  // Waits until the API server serves a CustomResourceDefinition.
  CommandResult wait_for_crd(const std::string& name) const;

  // Starts another program of .ci/control-plane; its output goes to NAME.log in the folder.
  ChildProcess start(const std::string& program, const std::vector<std::string>& arguments) const;

  pid_t etcd_pid() const { return etcd_->pid(); }
  pid_t api_server_pid() const { return api_server_->pid(); }
  // Simulates a crash with SIGKILL: connections break, acknowledged writes remain in etcd.
  void kill_api_server();
  // Starts it on the same port with the same data; returns when it is ready.
  void start_api_server();

 private:
  void start_etcd();
  struct Grant {
    std::string user;
    nlohmann::json rules;
  };
  // Waits until a GET of the path succeeds.
  void await(const std::string& path);
  // Waits until `check` returns true; its string goes into the error message.
  void await(const std::string& complaint,
             const std::function<std::pair<bool, std::string>()>& check);
  void wait_until_granted(const Grant& grant);
  // Throws if etcd or the API server has exited.
  void check_running();
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
