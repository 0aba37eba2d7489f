// Compares validate(), the CRD and the built pods with the admission of a real API server in a
// namespace that enforces the restricted Pod Security Standard.
#include <fmt/format.h>

#include <random>

#include "controller/api/defaults.h"
#include "controller/cluster/objects.h"
#include "tests/integration/crd_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kNamespace = "restricted";

// Patches of a pod's spec. Half of them are allowed.
constexpr const char* kPodPatches[] = {
    R"({"hostNetwork": true})",
    R"({"hostPID": true})",
    R"({"hostIPC": true})",
    R"({"hostNetwork": false, "hostPID": false, "hostIPC": false})",
    R"({"hostUsers": false})",
    R"({"os": {"name": "linux"}})",
    R"({"securityContext": {"runAsNonRoot": false}})",
    R"({"securityContext": {"runAsNonRoot": true}})",
    R"({"securityContext": {"runAsUser": 0}})",
    R"({"securityContext": {"runAsUser": 7, "supplementalGroups": [0]}})",
    R"({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})",
    R"({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}})",
    R"({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}})",
    R"({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})",
    R"({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}})",
    R"({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}})",
    R"({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}})",
    R"({"securityContext": {"seLinuxOptions": {"type": "container_init_t", "level": "s0"}}})",
    R"({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}})",
    R"({"securityContext": {"seLinuxOptions": {"user": "system_u"}}})",
    R"({"securityContext": {"seLinuxOptions": {"role": "system_r"}}})",
    R"({"securityContext": {"seLinuxOptions": {"user": "", "role": "", "type": ""}}})",
    R"({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}})",
    R"({"securityContext": {"windowsOptions": {"hostProcess": false}}})",
    R"({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}})",
    R"({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}})",
    R"({"securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports",
        "value": "1"}, {"name": "net.ipv4.tcp_keepalive_time", "value": "1"}]}})",
    R"({"securityContext": {"fsGroup": 0}})",
};

// Patches of a container. privileged and some capabilities are invalid without
// allowPrivilegeEscalation, and procMount Unmasked without hostUsers false.
constexpr const char* kContainerPatches[] = {
    R"({"securityContext": {"privileged": true, "allowPrivilegeEscalation": true}})",
    R"({"securityContext": {"privileged": false}})",
    R"({"securityContext": {"allowPrivilegeEscalation": true}})",
    R"({"securityContext": {"allowPrivilegeEscalation": false}})",
    R"({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})",
    R"({"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}})",
    R"({"securityContext": {"capabilities": {"add": []}}})",
    R"({"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}})",
    R"({"securityContext": {"capabilities": {"drop": []}}})",
    R"({"securityContext": {"capabilities": {"drop": ["NET_RAW", "ALL"]}}})",
    R"({"securityContext": {"runAsNonRoot": false}})",
    R"({"securityContext": {"runAsNonRoot": true}})",
    R"({"securityContext": {"runAsUser": 0}})",
    R"({"securityContext": {"runAsUser": 7, "runAsGroup": 0}})",
    R"({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})",
    R"({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}})",
    R"({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})",
    R"({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}})",
    R"({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}})",
    R"({"securityContext": {"seLinuxOptions": {"type": "container_kvm_t"}}})",
    R"({"securityContext": {"seLinuxOptions": {"user": "u"}}})",
    R"({"securityContext": {"seLinuxOptions": {"role": "r"}}})",
    R"({"securityContext": {"procMount": "Default"}})",
    R"({"securityContext": {"procMount": "Unmasked"}})",
    R"({"securityContext": {"windowsOptions": {"hostProcess": false}}})",
    R"({"securityContext": {"readOnlyRootFilesystem": false}})",
    R"({"securityContext": {}})",
    R"({"ports": [{"containerPort": 81, "hostPort": 81}]})",
    R"({"ports": [{"containerPort": 81, "hostPort": 0}]})",
    R"({"livenessProbe": {"httpGet": {"port": 81, "host": "192.0.2.1"}}})",
    R"({"livenessProbe": {"tcpSocket": {"port": 81, "host": "127.0.0.1"}}})",
    R"({"livenessProbe": {"httpGet": {"port": 81, "host": ""}}})",
    R"({"readinessProbe": {"httpGet": {"port": 81, "host": "192.0.2.1"}}})",
    R"({"readinessProbe": {"tcpSocket": {"port": 81}}})",
    R"({"startupProbe": {"tcpSocket": {"port": 81, "host": "example.org"}}})",
    R"({"startupProbe": {"exec": {"command": ["true"]}}})",
    R"({"lifecycle": {"postStart": {"httpGet": {"port": 81, "host": "192.0.2.1"}}}})",
    R"({"lifecycle": {"preStop": {"httpGet": {"port": 81, "host": "192.0.2.1"}}}})",
    R"({"lifecycle": {"preStop": {"tcpSocket": {"port": 81, "host": "192.0.2.1"}}}})",
    R"({"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}})",
};

constexpr const char* kVolumes[] = {
    R"({"hostPath": {"path": "/"}})",
    R"({"nfs": {"server": "s", "path": "/p"}})",
    R"({"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}})",
    R"({"azureFile": {"secretName": "s", "shareName": "n"}})",
    R"({"fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0}})",
    R"({"flexVolume": {"driver": "example.com/driver"}})",
    R"({"emptyDir": {}})",
    R"({"configMap": {"name": "c"}})",
    R"({"secret": {"secretName": "s"}})",
    R"({"csi": {"driver": "d.example.com"}})",
    R"({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}})",
    R"({"projected": {"sources": [{"configMap": {"name": "c"}}]}})",
    R"({"persistentVolumeClaim": {"claimName": "c"}})",
    R"({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}}})",
};

constexpr const char* kAppArmorProfiles[] = {"unconfined", "runtime/default", "localhost/p"};

// An overlay with an additional container and an init container that is a sidecar: only these may
// have probes.
json plain_overlay() {
  return json::parse(R"({"metadata": {"annotations": {}}, "spec": {"volumes": [],
      "containers": [{"name": "worker"}, {"name": "side", "image": "i"}],
      "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}]}})");
}

std::vector<json*> containers_of(json& overlay) {
  json& spec = overlay["spec"];
  return {&spec["containers"][0], &spec["containers"][1], &spec["initContainers"][0]};
}

void add_volume(json& overlay, const char* source) {
  json volume = json::parse(source);
  json& volumes = overlay["spec"]["volumes"];
  volume["name"] = fmt::format("v{}", volumes.size());
  volumes.push_back(volume);
}

void patch_container(json& overlay, std::size_t index, const char* patch) {
  containers_of(overlay)[index]->merge_patch(json::parse(patch));
  if (std::string_view(patch).find("Unmasked") != std::string_view::npos) {
    overlay["spec"]["hostUsers"] = false;
  }
}

void annotate(json& overlay, std::size_t index, const char* profile) {
  const std::string name = (*containers_of(overlay)[index])["name"];
  overlay["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/" + name] =
      profile;
}

class PodSecurityAdmission : public CrdTest {
 protected:
  void SetUp() override {
    CrdTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    const HttpResponse made =
        admin().post("/api/v1/namespaces",
                     {{"metadata",
                       {{"name", kNamespace},
                        {"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
    ASSERT_TRUE(made.ok() || made.status == 409) << made.message();
  }

  enum class Verdict { kAdmitted, kForbidden, kInvalid };

  // What the API server says of the pod with the overlay, whatever validate() says of it.
  static Verdict admission(api::TrainJob job, const json& overlay) {
    job.spec.worker.pod_template = overlay;
    job.metadata.namespace_name = kNamespace;
    job.metadata.uid = "00000000-0000-0000-0000-000000000000";
    const HttpResponse answer =
        admin().post(fmt::format("/api/v1/namespaces/{}/pods?dryRun=All", kNamespace),
                     cluster::build_pod(job, 0, {"192.0.2.1:29400", "0a1b2c3d"}));
    if (answer.ok()) return Verdict::kAdmitted;
    if (answer.status == 422) return Verdict::kInvalid;
    EXPECT_EQ(answer.status, 403) << answer.message();
    EXPECT_THAT(answer.message(), HasSubstr("violates PodSecurity \"restricted")) << overlay;
    return Verdict::kForbidden;
  }

  // Whether validate(), the CRD and the API server's admission agree on the overlay.
  Verdict expect_agreement(const json& overlay) {
    const Verdict verdict = admission(job_, overlay);
    if (verdict == Verdict::kInvalid) return verdict;
    json manifest = manifest_;
    manifest["spec"]["worker"]["podTemplate"] = overlay;
    const std::string ours = validation_error(manifest.dump());
    EXPECT_EQ(ours.empty(), verdict == Verdict::kAdmitted) << overlay << "\n" << ours;
    const HttpResponse crd = admin().post(kDryRunPath, manifest);
    EXPECT_EQ(crd.ok(), ours.empty()) << overlay << "\n" << crd.message() << "\n" << ours;
    return verdict;
  }

  const json manifest_ = parse_yaml(api::testing::kManifest);
  const api::TrainJob job_ = api::testing::job_of();
};

TEST_F(PodSecurityAdmission, AgreesOnEachField) {
  int counts[3] = {};
  const auto check = [&](const json& overlay) {
    const Verdict verdict = expect_agreement(overlay);
    ++counts[static_cast<int>(verdict)];
    EXPECT_NE(verdict, Verdict::kInvalid) << overlay << ": the API server refuses the pod as such";
  };
  check(plain_overlay());
  for (const char* patch : kPodPatches) {
    json overlay = plain_overlay();
    overlay["spec"].merge_patch(json::parse(patch));
    check(overlay);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (const char* patch : kContainerPatches) {
      json overlay = plain_overlay();
      patch_container(overlay, i, patch);
      check(overlay);
    }
    for (const char* profile : kAppArmorProfiles) {
      json overlay = plain_overlay();
      annotate(overlay, i, profile);
      check(overlay);
    }
  }
  for (const char* volume : kVolumes) {
    json overlay = plain_overlay();
    add_volume(overlay, volume);
    check(overlay);
  }
  EXPECT_GT(counts[static_cast<int>(Verdict::kAdmitted)], 60);
  EXPECT_GT(counts[static_cast<int>(Verdict::kForbidden)], 60);
}

TEST_F(PodSecurityAdmission, AgreesOnGeneratedOverlays) {
  std::mt19937 random(20260131);
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  int counts[3] = {};
  for (int tested = 0; tested < 300; ++tested) {
    json overlay = plain_overlay();
    for (std::size_t patches = 1 + below(3); patches > 0; --patches) {
      const std::size_t kind = below(10);
      if (kind < 3) {
        overlay["spec"].merge_patch(json::parse(kPodPatches[below(std::size(kPodPatches))]));
      } else if (kind < 7) {
        patch_container(overlay, below(3), kContainerPatches[below(std::size(kContainerPatches))]);
      } else if (kind < 9) {
        add_volume(overlay, kVolumes[below(std::size(kVolumes))]);
      } else {
        annotate(overlay, below(3), kAppArmorProfiles[below(std::size(kAppArmorProfiles))]);
      }
    }
    ++counts[static_cast<int>(expect_agreement(overlay))];
  }
  // Two patches together may make a pod that is invalid in itself.
  EXPECT_LT(counts[static_cast<int>(Verdict::kInvalid)], 60);
  EXPECT_GT(counts[static_cast<int>(Verdict::kAdmitted)], 50);
  EXPECT_GT(counts[static_cast<int>(Verdict::kForbidden)], 50);
}

}  // namespace
}  // namespace tilewright::testing
