// etcd, API server, scheduler and kwok's nodes on this machine: a cluster whose pods cost nothing,
// so that what is measured is who makes them.
#pragma once

#include <memory>
#include <string>

#include "controller/kube/client.h"
#include "tests/support/control_plane.h"

namespace tilewright::bench {

class FakeCluster {
 public:
  // Throws std::runtime_error naming what is missing or did not start.
  explicit FakeCluster(int nodes);

  kube::Client& client() { return *client_; }
  testing::ControlPlane& control_plane() { return control_plane_; }
  void make_namespace(const std::string& name);

 private:
  testing::ControlPlane control_plane_;
  std::unique_ptr<kube::Client> client_;
  std::optional<ChildProcess> scheduler_, kwok_;
};

std::unique_ptr<kube::Client> client_for(const testing::ControlPlane& control_plane);
net::Wait soon();
// Throws for an answer that is an error.
template <typename T>
T need(kube::ApiResult<T> answer) {
  if (!answer) throw std::runtime_error(answer.error().sentence());
  return std::move(answer).value();
}

}  // namespace tilewright::bench
