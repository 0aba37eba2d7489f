#include "bench/controller/fake_cluster.h"

#include <fmt/format.h>

#include <stdexcept>

#include "common/json/document.h"
#include "tests/support/object_watch.h"
#include "tests/support/paths.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;

// Disables TaintNodesByCondition: no node controller runs here to remove the taint of a new node.
testing::ControlPlaneOptions options() {
  testing::ControlPlaneOptions made;
  made.api_server_flags = {"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"};
  return made;
}

}  // namespace

net::Wait default_wait() { return net::within(std::chrono::seconds(60)); }

std::unique_ptr<kube::Client> client_for(const testing::ControlPlane& control_plane) {
  kube::ConfigSources sources;
  sources.kubeconfig = control_plane.kubeconfig();
  return kube::Client::make(kube::load_config(sources).or_throw()).or_throw();
}

FakeCluster::FakeCluster(int nodes)
    : control_plane_(options()), client_(client_for(control_plane_)) {
  const kube::WriteGuard guard = kube::WriteGuard::unfenced();
  const json definition =
      read_yaml(testing::read_text(testing::source_dir() / "crds/trainjobs.tilewright.dev.yaml"))
          .tree;
  value_or_throw(client_->create(guard,
                                 {"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                  "CustomResourceDefinition", false},
                                 "", definition, default_wait()));
  const testing::CommandResult established =
      control_plane_.wait_for_crd("trainjobs.tilewright.dev");
  if (established.exit_code != 0) throw std::runtime_error(established.error);

  const std::string kubeconfig = "--kubeconfig=" + control_plane_.kubeconfig().string();
  scheduler_.emplace(control_plane_.start(
      "kube-scheduler", {kubeconfig, "--leader-elect=false", "--secure-port=0",
                         // The default limit of 50 requests/s would dominate the measurement.
                         "--kube-api-qps=5000", "--kube-api-burst=5000"}));
  kwok_.emplace(control_plane_.start(
      "kwok", {kubeconfig, "--manage-all-nodes=true", "--node-lease-duration-seconds=0",
               "--config=" + (testing::source_dir() / "bench/controller/stages.yaml").string()}));
  for (int i = 0; i < nodes; ++i) {
    value_or_throw(
        client_->create(guard, kube::resource::nodes(), "",
                        {{"apiVersion", "v1"},
                         {"kind", "Node"},
                         {"metadata", {{"name", fmt::format("node-{}", i)}}},
                         {"status",
                          {{"allocatable", {{"cpu", "512"}, {"memory", "4Ti"}, {"pods", "2000"}}},
                           {"capacity", {{"cpu", "512"}, {"memory", "4Ti"}, {"pods", "2000"}}}}}},
                        default_wait()));
  }
  testing::ObjectWatch watch(*client_, kube::resource::nodes(), "");
  const bool ready = watch.wait_until([&](const auto& all) {
    int count = 0;
    for (const auto& [name, node] : all) {
      for (const json& condition : node["status"].value("conditions", json::array())) {
        count += condition["type"] == "Ready" && condition["status"] == "True" ? 1 : 0;
      }
    }
    return count == nodes;
  });
  if (!ready) throw std::runtime_error("the kwok nodes did not become ready");
}

void FakeCluster::make_namespace(const std::string& name) {
  value_or_throw(client_->create(kube::WriteGuard::unfenced(),
                                 {"", "v1", "namespaces", "Namespace", false}, "",
                                 {{"metadata", {{"name", name}}}}, default_wait()));
}

}  // namespace tilewright::bench
