#include "tests/support/cluster_test.h"

#include <iostream>
#include <stdexcept>

#include "tests/support/paths.h"

namespace tilewright::testing {

// If the control plane does not start, later tests do not retry.
struct ClusterTest::Shared {
  std::unique_ptr<ControlPlane> plane;
  std::string failure;
};

ClusterTest::Shared& ClusterTest::shared() {
  static Shared shared;
  return shared;
}

ControlPlane& ClusterTest::control_plane() {
  Shared& it = shared();
  if (it.plane == nullptr && it.failure.empty()) {
    try {
      it.plane = std::make_unique<ControlPlane>();
    } catch (const std::exception& error) {
      it.failure = error.what();
    }
  }
  if (it.plane == nullptr) throw std::runtime_error(it.failure);
  return *it.plane;
}

void ClusterTest::install_permissive_crd(const std::string& group, const std::string& version,
                                         const std::string& plural, const std::string& kind) {
  const std::string path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  const std::string name = plural + "." + group;
  HttpsClient& admin = control_plane().admin();
  if (admin.get(path + "/" + name).ok()) return;
  const nlohmann::json schema = {
      {"openAPIV3Schema", {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}}}};
  const HttpResponse made = admin.post(
      path, {{"apiVersion", "apiextensions.k8s.io/v1"},
             {"kind", "CustomResourceDefinition"},
             {"metadata", {{"name", name}}},
             {"spec",
              {{"group", group},
               {"scope", "Namespaced"},
               {"names", {{"plural", plural}, {"kind", kind}}},
               {"versions",
                {{{"name", version}, {"served", true}, {"storage", true}, {"schema", schema}}}}}}});
  ASSERT_EQ(made.status, 201) << made.message();
  const CommandResult waited = control_plane().wait_for_crd(name);
  ASSERT_EQ(waited.exit_code, 0) << waited.error;
}

void ClusterTest::SetUp() {
  std::string reason = ControlPlane::missing();
  if (reason.empty()) reason = ControlPlane::missing(more_programs_);
  if (reason.empty()) return;
  if (prerequisites_required()) FAIL() << reason;
  GTEST_SKIP() << reason;
}

void ClusterTest::TearDown() {
  if (!HasFailure() || shared().plane == nullptr) return;
  shared().plane->keep_folder();
  std::cout << "the control plane's logs: " << shared().plane->folder().string() << "/*.log\n";
}

}  // namespace tilewright::testing
