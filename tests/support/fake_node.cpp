#include "tests/support/fake_node.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/json/timestamp.h"
#include "common/net/wait.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

constexpr const char* kStrategicMerge = "application/strategic-merge-patch+json";

std::string now() { return to_rfc3339(wall_now()); }

json container(const json& pod, const json& state, bool ready) {
  const json& first = pod["spec"]["containers"][0];
  return {{"name", first.value("name", "")},
          {"image", first.value("image", "")},
          {"imageID", "stand-in"},
          {"restartCount", 0},
          {"ready", ready},
          {"started", ready},
          {"state", state}};
}

json ready_condition(bool ready) {
  return {{"type", "Ready"}, {"status", ready ? "True" : "False"}, {"lastTransitionTime", now()}};
}

json running(const json& pod) {
  return {{"phase", "Running"},
          {"startTime", now()},
          {"conditions", {ready_condition(true)}},
          {"containerStatuses", {container(pod, {{"running", {{"startedAt", now()}}}}, true)}}};
}

json ended(const json& pod, int exit_code, const std::string& reason,
           const std::string& last_lines) {
  json terminated = {{"exitCode", exit_code},
                     {"reason", reason.empty() ? (exit_code == 0 ? "Completed" : "Error") : reason},
                     {"finishedAt", now()}};
  if (!last_lines.empty()) terminated["message"] = last_lines;
  const json started =
      pod.value(json::json_pointer("/status/containerStatuses/0/state/running/startedAt"), json());
  if (started.is_string()) terminated["startedAt"] = started;
  return {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
          {"conditions", {ready_condition(false)}},
          {"containerStatuses", {container(pod, {{"terminated", terminated}}, false)}}};
}

}  // namespace

FakeNode::FakeNode(ControlPlane& control_plane, kube::Client& client,
                   const std::string& namespace_name, const std::string& name)
    : control_plane_(control_plane),
      namespace_(namespace_name),
      name_(name),
      kubelet_client_(control_plane.client({control_plane.admin_certificate(), ""})),
      test_client_(control_plane.client({control_plane.admin_certificate(), ""})) {
  // A kubelet sets this annotation; the attach-detach controller ignores nodes without it.
  const json annotations = {{"volumes.kubernetes.io/controller-managed-attach-detach", "true"}};
  test_client_->post("/api/v1/nodes",
                     {{"apiVersion", "v1"},
                      {"kind", "Node"},
                      {"metadata", {{"name", name}, {"annotations", annotations}}}});
  set_ready(true);
  set_cpus(64);
  pods_ = std::make_unique<ObjectWatch>(
      client, kube::resource::pods(), namespace_,
      [this](const std::string& pod, const json& object) { on_pod_changed(pod, object); });
}

void FakeNode::crash() { crashed_ = true; }

void FakeNode::set_ready(bool ready) {
  patch_node(
      {{"conditions",
        {{{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}, {"reason", "StandIn"}}}}});
}

void FakeNode::set_cpus(int cpus) {
  patch_node(
      {{"allocatable", {{"cpu", std::to_string(cpus)}, {"memory", "256Gi"}, {"pods", "110"}}}});
}

void FakeNode::set_volumes_in_use(const std::vector<std::string>& volumes) {
  patch_node({{"volumesInUse", volumes}});
}

void FakeNode::patch_node(const json& status) {
  const HttpResponse set = test_client_->send("PATCH", "/api/v1/nodes/" + name_ + "/status",
                                              json{{"status", status}}.dump(), kStrategicMerge);
  EXPECT_TRUE(set.ok()) << set.message();
}

std::string FakeNode::path(const std::string& name) const {
  return fmt::format("/api/v1/namespaces/{}/pods/{}", namespace_, name);
}

HttpResponse FakeNode::patch_status(HttpsClient& client, const std::string& name,
                                    const json& status) const {
  return retry_while_unavailable([&] {
    return client.send("PATCH", path(name) + "/status", json{{"status", status}}.dump(),
                       kStrategicMerge);
  });
}

// Retries while the API server restarts, as a kubelet does.
HttpResponse FakeNode::retry_while_unavailable(const std::function<HttpResponse()>& request) const {
  constexpr std::chrono::seconds kTimeout{60};
  constexpr std::chrono::milliseconds kRetryInterval{100};
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (true) {
    HttpResponse answer = request();
    const bool down = answer.status == 0 || answer.status >= 500 || answer.status == 429;
    if (!down || std::chrono::steady_clock::now() > deadline) return answer;
    net::sleep_until(net::within(kRetryInterval));
  }
}

// Conflicts and deleted pods are ignored: the next event has the current object.
void FakeNode::on_pod_changed(const std::string& name, const json& pod) {
  if (pod.is_null() || crashed_) return;
  const std::string node = pod["spec"].value("nodeName", "");
  const std::string phase = pod["status"].value("phase", "");
  const bool terminating = pod["metadata"].contains("deletionTimestamp");
  if (node.empty()) {
    if (!accepting_ || terminating) return;
    const json binding = {{"apiVersion", "v1"},
                          {"kind", "Binding"},
                          {"metadata", {{"name", name}, {"uid", pod["metadata"]["uid"]}}},
                          {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", name_}}}};
    retry_while_unavailable(
        [&] { return kubelet_client_->post(path(name) + "/binding", binding); });
  } else if (node != name_) {
    return;
  } else if (terminating) {
    if (!holding_deletions_) remove_pod(*kubelet_client_, name, pod);
  } else if (phase == "Pending" && !holding_) {
    patch_status(*kubelet_client_, name, running(pod));
  }
}

void FakeNode::remove_pod(HttpsClient& client, const std::string& name, const json& pod) const {
  if (pod["status"].value("phase", "") == "Running") {
    patch_status(client, name, ended(pod, 143, "", ""));
  }
  const json options = {{"gracePeriodSeconds", 0},
                        {"preconditions", {{"uid", pod["metadata"]["uid"]}}}};
  retry_while_unavailable(
      [&] { return client.send("DELETE", path(name), options.dump(), "application/json"); });
}

void FakeNode::finish_deletions() {
  for (const auto& [name, pod] : pods_->objects()) {
    if (pod["metadata"].contains("deletionTimestamp")) remove_pod(*test_client_, name, pod);
  }
}

void FakeNode::end_container(const std::string& pod, int exit_code, const std::string& reason,
                             const std::string& last_lines) {
  const HttpResponse got = retry_while_unavailable([&] { return test_client_->get(path(pod)); });
  ASSERT_TRUE(got.ok()) << got.message();
  const HttpResponse set =
      patch_status(*test_client_, pod, ended(got.json(), exit_code, reason, last_lines));
  ASSERT_TRUE(set.ok()) << set.message();
}

void FakeNode::set_address(const std::string& pod, const std::string& ip) {
  const HttpResponse set =
      patch_status(*test_client_, pod, {{"podIP", ip}, {"podIPs", {{{"ip", ip}}}}});
  ASSERT_TRUE(set.ok()) << set.message();
}

void FakeNode::start_containers() {
  for (const auto& [name, pod] : pods_->objects()) {
    if (pod["status"].value("phase", "") == "Pending")
      patch_status(*test_client_, name, running(pod));
  }
}

void FakeNode::succeed_all() {
  for (const auto& [name, pod] : pods_->objects()) {
    if (pod["status"].value("phase", "") == "Running") end_container(name, 0);
  }
}

}  // namespace tilewright::testing
