// What the tests of the CRD share: it stands on an API server, where jobs are tried, made and
// changed.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "controller/api/document.h"
#include "controller/api/validate.h"
#include "tests/support/cluster_test.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::testing {

inline constexpr const char* kDefinitions =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
inline const std::string kJobs = "/apis/tilewright.dev/v1alpha1/namespaces/default/trainjobs";
// As kubectl asks: an unknown field is an error.
inline const std::string kTry = kJobs + "?fieldValidation=Strict&dryRun=All";

inline std::filesystem::path definition_file() {
  return source_dir() / "crds/trainjobs.tilewright.dev.yaml";
}

// As kubectl would send it.
inline nlohmann::json tree_of(const std::string& yaml) {
  const api::Document document = api::read_yaml(yaml);
  EXPECT_TRUE(document.errors.empty()) << api::sentences(document.errors);
  return document.tree;
}

// Why controller/api refuses the manifest for a cluster; empty if it does not.
inline std::string our_refusal(const std::string& manifest) {
  const auto checked = api::check_manifest(manifest, "job.yaml", api::Target::kCluster);
  return checked.ok() ? "" : checked.error().message;
}

class CrdTest : public ClusterTest {
 protected:
  using ClusterTest::ClusterTest;
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ready_ = admin().get(std::string(kDefinitions) + "/trainjobs.tilewright.dev").ok();
    if (ready_) return;
    const HttpResponse made = admin().post(kDefinitions, tree_of(read_text(definition_file())));
    ASSERT_EQ(made.status, 201) << made.message();
    const CommandOutcome waited = control_plane().kubectl(
        {"wait", "crd/trainjobs.tilewright.dev", "--for=condition=Established", "--timeout=60s"});
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
    ready_ = true;
  }

  void TearDown() override {
    if (ready_) admin().remove(kJobs);
    ClusterTest::TearDown();
  }

  static HttpsClient& admin() { return control_plane().admin(); }
  static nlohmann::json created(const std::string& manifest = api::testing::kManifest) {
    const HttpResponse made = admin().post(kJobs, tree_of(manifest));
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }

  static HttpResponse changed(const nlohmann::json& patch, const std::string& name = "mrpc") {
    return admin().merge_patch(kJobs + "/" + name, patch);
  }

 private:
  bool ready_ = false;
};

}  // namespace tilewright::testing
