#include "controller/cli/validate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "common/base/exit_codes.h"
#include "controller/cli/render.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright {
namespace {

using api::testing::kManifest;
using api::testing::with;

class Cli : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path) << text;
    return path;
  }
  int validate(const std::vector<std::filesystem::path>& files) {
    return validate_files(files, out_, err_);
  }

  tilewright::testing::TemporaryDirectory folder_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(Cli, ValidateSumsAGoodManifestUp) {
  const auto good = file("good.yaml", kManifest);
  EXPECT_EQ(validate({good}), 0);
  EXPECT_EQ(out_.str(),
            good.string() +
                ": valid: mrpc on 2 workers (1 to 4), cpu 1, memory 2Gi each; 32 examples "
                "a step in 8 shards; runs here and in a cluster\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(Cli, ValidateGoesOnAfterABadManifest) {
  const auto bad = file("bad.yaml", with("minReplicas: 1", "minReplicas: 5"));
  const auto good = file("good.yaml", kManifest);
  EXPECT_EQ(validate({bad, good}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(err_.str(), bad.string() +
                            ":9: spec.elasticPolicy.minReplicas: found 5, expected at most "
                            "4, as spec.elasticPolicy.maxReplicas says\n");
  EXPECT_NE(out_.str().find("good.yaml: valid"), std::string::npos);
}

TEST_F(Cli, ValidateSaysWhereAManifestDoesNotRun) {
  const auto cluster_only = file("c.yaml", with("      local: data\n", ""));
  EXPECT_EQ(validate({cluster_only}), 0);
  EXPECT_NE(out_.str().find("runs in a cluster, not here\n"), std::string::npos) << out_.str();
  EXPECT_NE(err_.str().find("c.yaml:33: spec.volumes[1].local: found nothing"), std::string::npos);
}

TEST_F(Cli, ValidateRefusesWhatRunsNowhere) {
  const auto nowhere =
      file("n.yaml", with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "",
                          with("      local: ../models\n", "")));
  EXPECT_EQ(validate({nowhere}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Cli, ValidateNamesAMissingFile) {
  EXPECT_EQ(validate({folder_.path() / "none.yaml"}), static_cast<int>(ExitCode::kManifest));
  EXPECT_NE(err_.str().find("none.yaml: cannot open: No such file or directory"),
            std::string::npos);
}

TEST_F(Cli, RenderPrintsEveryObjectAndNoKey) {
  const Result<std::string> rendered = render_file(file("good.yaml", kManifest), "h:1");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  std::vector<std::string> kinds;
  std::istringstream lines(*rendered);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kind: ")) kinds.push_back(line.substr(6));
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"Secret", "Service", "NetworkPolicy", "Pod", "Pod"}));
  EXPECT_NE(rendered->find("job-key: \"(made by the operator)\""), std::string::npos);
  EXPECT_NE(rendered->find("value: h:1"), std::string::npos);
}

TEST_F(Cli, RenderRefusesWhatAClusterWould) {
  const Result<std::string> rendered = render_file(
      file("h.yaml",
           with("persistentVolumeClaim: {claimName: tilewright-data}", "hostPath: {path: /data}")),
      "h:1");
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, ExitCode::kManifest);
}

}  // namespace
}  // namespace tilewright
