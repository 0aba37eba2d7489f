// A node that runs nothing: binds the pods of a namespace to itself and reports of their containers
// what a test wants, as a scheduler and a kubelet would.
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

class StandInNode {
 public:
  // Makes the Node object, ready and empty.
  StandInNode(ControlPlane& control_plane, kube::Client& client, const std::string& namespace_name,
              const std::string& name);

  // While it is false, pods stay pending.
  void accept_pods(bool accept) { accepting_ = accept; }
  // While it is true, containers of pods that are bound do not start.
  void hold_containers(bool hold) { holding_ = hold; }
  void start_containers();
  // A dead node's kubelet says nothing: its pods stay as they are, deleted or not.
  void die();
  // The condition that the node controller would set after a while.
  void set_ready(bool ready);
  // 64 at first; memory is plenty.
  void set_cpus(int cpus);
  // The volumes that are mounted: those are not detached from it.
  void set_volumes_in_use(const std::vector<std::string>& volumes);

  // The container ends. `signal` 0: with the exit code. `reason`: OOMKilled, Error, ...
  void end_container(const std::string& pod, int exit_code, const std::string& reason = "",
                     const std::string& last_lines = "");
  // Every pod that runs now ends with 0.
  void succeed_all();

  ObjectWatch& pods() { return *pods_; }

 private:
  void changed(const std::string& name, const nlohmann::json& pod);
  void patch_node(const nlohmann::json& status);
  HttpResponse insist(const std::function<HttpResponse()>& request) const;
  HttpResponse patch_status(HttpsClient& client, const std::string& name,
                            const nlohmann::json& status) const;
  std::string path(const std::string& name) const;

  ControlPlane& control_plane_;
  const std::string namespace_;
  const std::string name_;
  std::atomic<bool> accepting_{true};
  std::atomic<bool> holding_{false};
  std::atomic<bool> dead_{false};
  std::unique_ptr<HttpsClient> kubelet_;  // of the watch's thread
  std::unique_ptr<HttpsClient> hand_;     // of the test's
  std::unique_ptr<ObjectWatch> pods_;
};

}  // namespace tilewright::testing
