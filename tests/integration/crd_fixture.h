// Fixture of the CRD tests: installs the CRD on an API server and creates and changes jobs.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "common/json/document.h"
#include "controller/api/validate.h"
#include "tests/support/cluster_test.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::testing {

inline constexpr const char* kCrdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
inline const std::string kJobsPath = "/apis/tilewright.dev/v1alpha1/namespaces/default/trainjobs";
// The query parameters of kubectl: an unknown field is an error.
inline const std::string kDryRunPath = kJobsPath + "?fieldValidation=Strict&dryRun=All";

inline std::filesystem::path crd_file() {
  return source_dir() / "crds/trainjobs.tilewright.dev.yaml";
}

// Parses YAML as kubectl does.
inline nlohmann::json parse_yaml(const std::string& yaml) {
  const Document document = read_yaml(yaml);
  EXPECT_TRUE(document.errors.empty()) << sentences(document.errors);
  return document.tree;
}

// The error of controller/api for the manifest; empty if it is valid for a cluster.
inline std::string validation_error(const std::string& manifest) {
  const auto checked = api::check_manifest(manifest, "job.yaml", api::Target::kCluster);
  return checked.ok() ? "" : checked.error().message;
}

class CrdTest : public ClusterTest {
 protected:
  using ClusterTest::ClusterTest;
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ready_ = admin().get(std::string(kCrdsPath) + "/trainjobs.tilewright.dev").ok();
    if (ready_) return;
    const HttpResponse made = admin().post(kCrdsPath, parse_yaml(read_text(crd_file())));
    ASSERT_EQ(made.status, 201) << made.message();
    const CommandResult waited = control_plane().wait_for_crd("trainjobs.tilewright.dev");
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
    ready_ = true;
  }

  void TearDown() override {
    if (ready_) admin().remove(kJobsPath);
    ClusterTest::TearDown();
  }

  static HttpsClient& admin() { return control_plane().admin(); }
  static nlohmann::json created(const std::string& manifest = api::testing::kManifest) {
    const HttpResponse made = admin().post(kJobsPath, parse_yaml(manifest));
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }

  static HttpResponse patch_job(const nlohmann::json& patch, const std::string& name = "mrpc") {
    return admin().merge_patch(kJobsPath + "/" + name, patch);
  }

 private:
  bool ready_ = false;
};

}  // namespace tilewright::testing
