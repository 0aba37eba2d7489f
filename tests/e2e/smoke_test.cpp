// Checks what jobs require of a cluster, without the operator: images run, volumes are writable,
// services reach pods, logs and exec work.
#include <gmock/gmock.h>

#include <iostream>
#include <utility>

#include "tests/e2e/kubernetes.h"

namespace tilewright {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::restricted_pod;

class Smoke : public testing::KubernetesTest {};

// A pod like those that controller/cluster/objects.cpp creates.
TEST_F(Smoke, AWorkerRunsAsAGuaranteedPodAndItsLogsCanBeRead) {
  json pod = restricted_pod("worker", testing::worker_image(), {"tilewright-worker", "--version"});
  pod["spec"]["nodeSelector"] = {{"kubernetes.io/os", "linux"}};
  json& container = pod["spec"]["containers"][0];
  container["volumeMounts"] = {{{"name", "shm"}, {"mountPath", "/dev/shm"}},
                               {{"name", "tmp"}, {"mountPath", "/tmp"}}};
  pod["spec"]["volumes"] = {
      {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", "16Mi"}}}},
      {{"name", "tmp"}, {"emptyDir", json::object()}}};
  create(pod);
  const auto took = wait("pod/worker", "{.status.phase}", "Succeeded");
  RecordProperty("seconds_to_succeeded", std::to_string(took.count()));
  std::cout << "Succeeded " << took.count() << " s after creation\n";
  EXPECT_EQ(get("pod/worker")["status"]["qosClass"], "Guaranteed");
  EXPECT_THAT(kubectl_ok({"logs", "worker"}), HasSubstr("tilewright-worker " TILEWRIGHT_VERSION));
}

TEST_F(Smoke, AServiceReachesItsPod) {
  json server =
      restricted_pod("server", testing::tools_image(),
                     {"sh", "-c", "echo hello >/tmp/index.html && exec httpd -f -p 8080 -h /tmp"});
  server["spec"]["containers"][0]["volumeMounts"] =
      json::array({{{"name", "tmp"}, {"mountPath", "/tmp"}}});
  server["spec"]["containers"][0]["readinessProbe"] = {{"tcpSocket", {{"port", 8080}}},
                                                       {"periodSeconds", 1}};
  server["spec"]["volumes"] = json::array({{{"name", "tmp"}, {"emptyDir", json::object()}}});
  create(server);
  const json service = create(
      {{"apiVersion", "v1"},
       {"kind", "Service"},
       {"metadata", {{"name", "server"}}},
       {"spec",
        {{"selector", {{"e2e", "server"}}}, {"ports", {{{"port", 80}, {"targetPort", 8080}}}}}}});
  const auto took =
      wait("pod/server", R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  RecordProperty("seconds_to_ready", std::to_string(took.count()));
  std::cout << "Ready " << took.count() << " s after creation\n";
  // kube-proxy may take a second to program a new service, so the command retries.
  const std::string address = service["spec"]["clusterIP"];
  const std::string ask =
      "exec 2>/dev/null; for try in 1 2 3 4 5 6 7 8; do timeout 3 wget -q -O - http://" + address +
      "/ && exit 0; sleep 0.5; done; exit 1";
  create(restricted_pod("client", testing::tools_image(), {"sh", "-c", ask}));
  wait("pod/client", "{.status.phase}", "Succeeded");
  EXPECT_EQ(kubectl_ok({"logs", "client"}), "hello\n");
}

TEST_F(Smoke, APodReachesTheApiServer) {
  create(restricted_pod(
      "client", testing::tools_image(),
      {"sh", "-c", "nc -w 30 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null"}));
  wait("pod/client", "{.status.phase}", "Succeeded");
}

TEST_F(Smoke, AVolumePersistsBetweenPods) {
  create({{"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata", {{"name", "data"}}},
          {"spec",
           {{"accessModes", {"ReadWriteOnce"}},
            {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
  for (const auto& [name, command] :
       {std::pair{"writer", "echo written >/data/file && stat -c %g /data"},
        std::pair{"reader", "cat /data/file"}}) {
    json pod = restricted_pod(name, testing::tools_image(), {"sh", "-c", command});
    pod["spec"]["containers"][0]["volumeMounts"] =
        json::array({{{"name", "data"}, {"mountPath", "/data"}}});
    pod["spec"]["volumes"] =
        json::array({{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", "data"}}}}});
    create(pod);
    wait(std::string("pod/") + name, "{.status.phase}", "Succeeded");
  }
  EXPECT_EQ(kubectl_ok({"logs", "writer"}), "65532\n");
  EXPECT_EQ(kubectl_ok({"logs", "reader"}), "written\n");
}

TEST_F(Smoke, ACommandRunsInAPod) {
  create(restricted_pod("idle", testing::tools_image(), {"sleep", "600"}));
  wait("pod/idle", "{.status.phase}", "Running");
  EXPECT_EQ(kubectl_ok({"exec", "idle", "--", "id", "-u"}), "65532\n");
}

}  // namespace
}  // namespace tilewright
