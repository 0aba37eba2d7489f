// A node that runs nothing: it binds a namespace's pods to itself and reports the container states
// that a test sets, as a scheduler and a kubelet would.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/control_plane.h"
#include "tests/support/object_watch.h"

namespace tilewright::testing {

class FakeNode {
 public:
  // Creates the Node object, ready and without pods.
  FakeNode(ControlPlane& control_plane, kube::Client& client, const std::string& namespace_name,
           const std::string& name);

  // While false, pods stay pending.
  void accept_pods(bool accept) { accepting_ = accept; }
  // While true, containers of bound pods do not start.
  void hold_containers(bool hold) { holding_ = hold; }
  void start_containers();
  // While true, deleted pods stay terminating, as in their grace period.
  void hold_deletions(bool hold) { holding_deletions_ = hold; }
  void finish_deletions();
  // Simulates a dead kubelet: the status of its pods no longer changes, even if they are deleted.
  void crash();
  // Sets the Ready condition, as the node lifecycle controller does after a timeout.
  void set_ready(bool ready);
  // Allocatable CPUs, initially 64; memory is ample.
  void set_cpus(int cpus);
  // Sets volumesInUse: these volumes are not detached from the node.
  void set_volumes_in_use(const std::vector<std::string>& volumes);

  // Ends the container: with the exit code if `signal` is 0. `reason`: OOMKilled, Error, ...
  void end_container(const std::string& pod, int exit_code, const std::string& reason = "",
                     const std::string& last_lines = "");
  // Sets status.podIP.
  void set_address(const std::string& pod, const std::string& ip);
  // Ends every running pod with exit code 0.
  void succeed_all();

  ObjectWatch& pods() { return *pods_; }

 private:
  void on_pod_changed(const std::string& name, const nlohmann::json& pod);
  void remove_pod(HttpsClient& client, const std::string& name, const nlohmann::json& pod) const;
  void patch_node(const nlohmann::json& status);
  HttpResponse retry_while_unavailable(const std::function<HttpResponse()>& request) const;
  HttpResponse patch_status(HttpsClient& client, const std::string& name,
                            const nlohmann::json& status) const;
  std::string path(const std::string& name) const;

  ControlPlane& control_plane_;
  const std::string namespace_;
  const std::string name_;
  std::atomic<bool> accepting_{true};
  std::atomic<bool> holding_{false};
  std::atomic<bool> holding_deletions_{false};
  std::atomic<bool> crashed_{false};
  std::unique_ptr<HttpsClient> kubelet_client_;  // used by the watch thread
  std::unique_ptr<HttpsClient> test_client_;     // used by the test's thread
  std::unique_ptr<ObjectWatch> pods_;
};

}  // namespace tilewright::testing
