// What spec.worker.podTemplate may not add beside the worker: trainings, and volumes, mounts,
// variables and ports that the pod already has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::errors_of;
using testing::kManifest;
using testing::with;

std::string overlay(const std::string& text, const std::string& manifest = kManifest) {
  return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text, manifest));
}

std::string error(const std::string& field, const std::string& message) {
  return fmt::format("job.yaml:28: spec.worker.podTemplate.spec.{}: {}", field, message);
}

TEST(PodTemplate, RefusesTrainingsBesideTheWorker) {
  const std::string expected =
      ", expected no training beside the worker's: put its flags into spec.trainer";
  for (const char* list : {"containers", "initContainers"}) {
    const auto other = [&](const std::string& fields) {
      return overlay(
          fmt::format("{{spec: {{{}: [{{name: a, image: i}}, {{image: i, {}}}]}}}}", list, fields));
    };
    const std::string place = std::string(list) + "[1].";
    EXPECT_EQ(other("name: pytorch"), error(place + "name", "found pytorch" + expected));
    EXPECT_EQ(other("name: b, command: [torchrun, train.py]"),
              error(place + "command[0]", "found torchrun" + expected));
    EXPECT_EQ(other("name: b, command: [/usr/local/bin/torchrun]"),
              error(place + "command[0]", "found torchrun" + expected));
    EXPECT_EQ(other("name: b, command: [python, -m, torch.distributed.launch, train.py]"),
              error(place + "command[2]", "found torch.distributed" + expected));
    EXPECT_EQ(other("name: b, command: [python], args: [/workspace/examples/run_qa.py]"),
              error(place + "args[0]", "found run_qa.py" + expected));
    EXPECT_EQ(other("name: b, command: [bash, -c], args: ['cd /w; python run_glue.py --do_train']"),
              error(place + "args[0]", "found run_glue.py" + expected));
    EXPECT_EQ(other("name: b, command: [tail, -F, /var/log/torch.log]"), "");
  }
}

// The overlay as the guides have it for a PyTorchJob.
TEST(PodTemplate, RefusesThePodOfAPyTorchJob) {
  const std::string refused = overlay(R"(
      spec:
        containers:
          - name: pytorch
            image: tilewright-worker:0.1.0
            command: [torchrun, /workspace/run_qa.py, --do_train]
            volumeMounts: [{name: dshm, mountPath: /dev/shm}]
        volumes: [{name: dshm, emptyDir: {medium: Memory}}])");
  for (const char* part : {
           "containers[0].name: found pytorch, expected no training beside the worker's",
           "containers[0].command[0]: found torchrun, expected no training beside the worker's",
           "containers[0].command[1]: found run_qa.py, expected no training beside the worker's",
           "volumes[0]: found the memory volume dshm, expected spec.worker.sharedMemory",
       }) {
    EXPECT_NE(refused.find(part), std::string::npos) << part << " in\n" << refused;
  }
}

TEST(PodTemplate, RefusesAVolumeForDevShm) {
  const std::string message =
      "found the memory volume dshm, expected spec.worker.sharedMemory, which sets the size of "
      "/dev/shm";
  EXPECT_EQ(overlay("{spec: {volumes: [{name: dshm, emptyDir: {medium: Memory}}]}}"),
            error("volumes[0]", message));
  EXPECT_EQ(
      errors_of(with("  volumes:\n",
                     "  volumes:\n    - {name: dshm, emptyDir: {medium: Memory}, local: a}\n")),
      "job.yaml:30: spec.volumes[0]: " + message);
  EXPECT_EQ(overlay("{spec: {volumes: [{name: dshm, emptyDir: {}}]}}"), "");
  EXPECT_EQ(overlay("{spec: {volumes: [{name: cache, emptyDir: {medium: Memory}}]}}"), "");
}

TEST(PodTemplate, RefusesASecondSourceOfAVolume) {
  EXPECT_EQ(
      overlay("{spec: {volumes: [{name: data, emptyDir: {}}]}}"),
      error("volumes[0].emptyDir",
            "found a second source for the volume data, expected persistentVolumeClaim, as in "
            "spec.volumes"));
  EXPECT_EQ(overlay("{spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: b}}]}}"),
            "");
}

TEST(PodTemplate, RefusesAnotherVolumeInPlaceOfOneOfTheSpec) {
  const auto mounted = [](const std::string& container, const std::string& mount) {
    return overlay(fmt::format("{{spec: {{containers: [{{name: {}, volumeMounts: [{{{}}}]}}]}}}}",
                               container, mount));
  };
  for (const char* path : {"/mnt/tilewright/data", "/mnt//tilewright/./data/"}) {
    EXPECT_EQ(mounted("worker", fmt::format("name: other, mountPath: {}", path)),
              error("containers[0].volumeMounts[0].mountPath",
                    fmt::format("found {}, expected another path: the volume data of spec.volumes "
                                "is mounted there",
                                path)));
  }
  EXPECT_EQ(mounted("worker", "name: data, mountPath: /mnt/tilewright/data, subPath: a"), "");
  EXPECT_EQ(mounted("worker", "name: other, mountPath: /mnt/tilewright/more"), "");
  EXPECT_EQ(mounted("side", "name: other, mountPath: /mnt/tilewright/data"), "");
}

// Otherwise the overlay could lead a path of spec.trainer out of its volume after it was checked.
TEST(PodTemplate, RefusesVariablesThatTheSpecSets) {
  const std::string manifest = with("restartPolicy: OnFailure", "env: [{name: SUB, value: a}]",
                                    with("data: data:MRPC", "data: data:$(SUB)"));
  const auto set = [&](const char* container, const char* name) {
    return overlay(fmt::format("{{spec: {{containers: [{{name: {}, env: [{{name: A, value: b}}, "
                               "{{name: {}, value: ../..}}]}}]}}}}",
                               container, name),
                   manifest);
  };
  EXPECT_EQ(set("worker", "SUB"),
            error("containers[0].env[1].name",
                  "found SUB, expected another name: spec.worker.env sets this one"));
  EXPECT_EQ(set("worker", "OTHER"), "");
  EXPECT_EQ(set("side", "SUB"), "");
}

TEST(PodTemplate, RefusesPortsOfTheWorker) {
  const auto port = [](const char* container, const char* entry, int processes = 1) {
    return overlay(
        fmt::format("{{spec: {{containers: [{{name: {}, ports: [{{{}}}]}}]}}}}", container, entry),
        with("nprocPerNode: 1", fmt::format("nprocPerNode: {}", processes)));
  };
  const std::string listens = ", expected another port: the worker listens on this one";
  for (const char* container : {"worker", "side"}) {
    EXPECT_EQ(port(container, "containerPort: 29500"),
              error("containers[0].ports[0].containerPort", "found 29500" + listens));
    EXPECT_EQ(port(container, "containerPort: 9400, name: own"),
              error("containers[0].ports[0].containerPort", "found 9400" + listens));
    EXPECT_EQ(port(container, "containerPort: 29501"), "");
    EXPECT_EQ(port(container, "containerPort: 29501", 2),
              error("containers[0].ports[0].containerPort", "found 29501" + listens));
  }
  for (const char* name : {"metrics", "transport"}) {
    const std::string entry = fmt::format("containerPort: 81, name: {}", name);
    EXPECT_EQ(port("worker", entry.c_str()),
              error("containers[0].ports[0].name",
                    fmt::format("found {}, expected another name: the operator has a port of this "
                                "name",
                                name)));
    EXPECT_EQ(port("side", entry.c_str()), "");
  }
}

}  // namespace
}  // namespace tilewright::api
