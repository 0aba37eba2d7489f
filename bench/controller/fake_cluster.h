// A cluster on this machine: etcd, API server, scheduler and kwok's simulated nodes. Its pods use
// no CPU, so that the benchmark measures the clients that create them.
#pragma once

#include <memory>
#include <string>

#include "controller/client/client.h"
#include "tests/support/control_plane.h"

namespace tilewright::bench {

class FakeCluster {
 public:
  // Throws std::runtime_error if a program is missing or does not start.
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
net::Wait default_wait();
// Returns the value or throws std::runtime_error.
template <typename T>
T value_or_throw(kube::ApiResult<T> result) {
  if (!result) throw std::runtime_error(result.error().sentence());
  return std::move(result).value();
}

}  // namespace tilewright::bench
