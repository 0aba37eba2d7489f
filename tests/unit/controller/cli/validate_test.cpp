#include "controller/cli/validate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "common/base/exit_codes.h"
#include "controller/cli/convert.h"
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
    std::filesystem::path path = directory_.path() / name;
    std::ofstream(path) << text;
    return path;
  }
  int validate(const std::vector<std::filesystem::path>& files) {
    return validate_files(files, out_, err_);
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(Cli, ValidateSummarizesAValidManifest) {
  const auto good = file("good.yaml", kManifest);
  EXPECT_EQ(validate({good}), 0);
  EXPECT_EQ(out_.str(),
            good.string() +
                ": valid: mrpc on 2 workers (1 to 4) with cpu 1 and memory 2Gi each, 32 "
                "examples per step in 8 shards; runs on this machine and in a cluster\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(Cli, ValidateContinuesAfterAnInvalidManifest) {
  const auto bad = file("bad.yaml", with("minReplicas: 1", "minReplicas: 5"));
  const auto good = file("good.yaml", kManifest);
  EXPECT_EQ(validate({bad, good}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(err_.str(), bad.string() +
                            ":9: spec.elasticPolicy.minReplicas: found 5, expected at most "
                            "4, the value of spec.elasticPolicy.maxReplicas\n");
  EXPECT_NE(out_.str().find("good.yaml: valid"), std::string::npos);
}

TEST_F(Cli, ValidateReportsWhereAManifestCannotRun) {
  const auto cluster_only = file("c.yaml", with("      local: data\n", ""));
  EXPECT_EQ(validate({cluster_only}), 0);
  EXPECT_NE(out_.str().find("runs in a cluster, not on this machine\n"), std::string::npos)
      << out_.str();
  EXPECT_NE(err_.str().find("c.yaml:33: spec.volumes[1].local: found nothing"), std::string::npos);
}

TEST_F(Cli, ValidateRejectsAManifestThatCanRunNowhere) {
  const auto nowhere =
      file("n.yaml", with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "",
                          with("      local: ../models\n", "")));
  EXPECT_EQ(validate({nowhere}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Cli, ValidateReportsAMissingFile) {
  EXPECT_EQ(validate({directory_.path() / "none.yaml"}), static_cast<int>(ExitCode::kManifest));
  EXPECT_NE(err_.str().find("none.yaml: cannot open: No such file or directory"),
            std::string::npos);
}

constexpr const char* kPyTorchJob = R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: qa}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: tilewright-worker:0.1.0
            command: [torchrun, run_qa.py, --model_name_or_path, m, --dataset_name, squad,
              --no_cuda, --output_dir, /data/out]
            env: [{name: LD_PRELOAD, value: libtcmalloc.so}]
            resources: {limits: {cpu: 2, memory: 4Gi}}
            volumeMounts: [{name: disk, mountPath: /data}]
          volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
)";

TEST_F(Cli, ValidateSaysWhatBecomesOfAPyTorchJob) {
  const auto path = file("torch.yaml", kPyTorchJob);
  EXPECT_EQ(validate({path}), 0) << err_.str();
  EXPECT_EQ(out_.str(), path.string() +
                            ": valid PyTorchJob: on the worker image run_qa.py runs natively on 2 "
                            "workers; tilewright convert makes a TrainJob of it\n");
  const std::string place = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]";
  EXPECT_EQ(err_.str(),
            path.string() + ":14: " + place +
                ".command[6]: --no_cuda: Tilewright computes on CPUs only (warning)\n" +
                path.string() + ":15: " + place +
                ".env[0]: LD_PRELOAD libtcmalloc.so: the worker allocates its memory at the start "
                "and has no OpenMP runtime, so another allocator or runtime has no effect "
                "(warning)\n");
}

TEST_F(Cli, ValidateSaysWhyAPyTorchJobDoesNotRunNatively) {
  const auto path = file("torch.yaml", with("run_qa.py", "train.py", kPyTorchJob));
  EXPECT_EQ(validate({path}), 0) << err_.str();
  EXPECT_NE(out_.str().find("valid PyTorchJob; it does not run natively: "
                            "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command: "
                            "found "),
            std::string::npos)
      << out_.str();
  EXPECT_NE(out_.str().find("train.py"), std::string::npos) << out_.str();
}

TEST_F(Cli, ValidateReportsTheErrorsOfAPyTorchJob) {
  const auto path = file("torch.yaml", with("replicas: 2", "replicas: 0", kPyTorchJob));
  EXPECT_EQ(validate({path}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(err_.str(), path.string() +
                            ":7: spec.pytorchReplicaSpecs.Worker.replicas: found 0, expected an "
                            "integer from 1 to 1000\n");
}

TEST_F(Cli, ValidateChecksJobsOfBothKindsInOneFile) {
  const auto both = file("both.yaml", kManifest + "---\n" + kPyTorchJob + "---\nkind: ConfigMap\n");
  EXPECT_EQ(validate({both}), 0) << err_.str();
  EXPECT_NE(out_.str().find("both.yaml: valid: mrpc on 2 workers"), std::string::npos);
  EXPECT_NE(out_.str().find("both.yaml: valid PyTorchJob: "), std::string::npos);
  EXPECT_NE(err_.str().find("both.yaml:59: not checked: the kind is ConfigMap\n"),
            std::string::npos)
      << err_.str();

  const auto bad =
      file("bad.yaml", kManifest + "---\n" + with("replicas: 2", "replicas: 0", kPyTorchJob));
  EXPECT_EQ(validate({bad}), static_cast<int>(ExitCode::kManifest));
  EXPECT_NE(err_.str().find("bad.yaml:46: spec.pytorchReplicaSpecs.Worker.replicas: found 0"),
            std::string::npos)
      << err_.str();

  const auto none = file("none.yaml", "kind: ConfigMap\n---\nkind: Secret\n");
  EXPECT_EQ(validate({none}), static_cast<int>(ExitCode::kManifest));
  EXPECT_NE(err_.str().find("none.yaml: found no job, expected a TrainJob or a PyTorchJob\n"),
            std::string::npos);
}

TEST_F(Cli, ConvertWritesAValidTrainJob) {
  const auto path = file("torch.yaml", kPyTorchJob);
  const Result<std::string> converted = convert_file(path, err_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(validate({file("train.yaml", *converted)}), 0) << *converted << err_.str();
  EXPECT_NE(converted->find("    dataset_name: squad\n"), std::string::npos) << *converted;
}

TEST_F(Cli, ConvertReadsEveryPyTorchJobOfAFile) {
  const auto path = file("two.yaml", std::string(kPyTorchJob) + "---\nkind: ConfigMap\n---\n" +
                                         with("name: qa", "name: second", kPyTorchJob));
  const Result<std::string> converted = convert_file(path, err_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ(err_.str(), path.string() + ":20: not converted: a ConfigMap\n");
  const std::size_t first = converted->find("  name: qa\n");
  const std::size_t separator = converted->find("\n---\n");
  EXPECT_LT(first, separator);
  EXPECT_LT(separator, converted->find("  name: second\n"));
}

TEST_F(Cli, ConvertRefusesWhatIsNoPyTorchJob) {
  const auto refused = [&](const std::string& text) {
    const Result<std::string> converted = convert_file(file("bad.yaml", text), err_);
    EXPECT_FALSE(converted.ok());
    if (converted.ok()) return std::string();
    EXPECT_EQ(converted.error().code, ExitCode::kManifest);
    return converted.error().message;
  };
  EXPECT_NE(refused(kManifest).find("bad.yaml:1: apiVersion: found the string "
                                    "\"tilewright.dev/v1alpha1\", expected kubeflow.org/v1"),
            std::string::npos);
  EXPECT_NE(refused("kind: ConfigMap\n---\nkind: Secret\n").find("bad.yaml: found no PyTorchJob"),
            std::string::npos);
  EXPECT_NE(refused("a: [").find("bad.yaml:"), std::string::npos);
  EXPECT_NE(refused(with("replicas: 2", "replicas: 0", kPyTorchJob)).find("found 0, expected"),
            std::string::npos);
}

TEST_F(Cli, RenderPrintsEveryObjectWithoutTheJobKey) {
  const Result<std::string> rendered = render_file(file("good.yaml", kManifest), "h:1");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  std::vector<std::string> kinds;
  std::istringstream lines(*rendered);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kind: ")) kinds.push_back(line.substr(6));
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"Secret", "Service", "NetworkPolicy", "Pod", "Pod"}));
  EXPECT_NE(rendered->find("job-key: \"(generated by the operator)\""), std::string::npos);
  EXPECT_NE(rendered->find("value: h:1"), std::string::npos);
}

TEST_F(Cli, RenderPrintsThePodGroupOfTheOperatorsGangScheduler) {
  const Result<std::string> rendered = render_file(file("good.yaml", kManifest), "h:1", "volcano");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_NE(rendered->find("apiVersion: scheduling.volcano.sh/v1beta1\n"), std::string::npos);
  EXPECT_NE(rendered->find("schedulerName: volcano\n"), std::string::npos);
}

TEST_F(Cli, RenderAsksForAtMostAsManyMembersAsPods) {
  const auto path =
      file("gang.yaml", with("cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 4}"));
  const Result<std::string> rendered = render_file(path, "h:1");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_NE(rendered->find("minMember: 2\n"), std::string::npos) << *rendered;
}

TEST_F(Cli, RenderRejectsAManifestThatIsInvalidInACluster) {
  const Result<std::string> rendered = render_file(
      file("h.yaml",
           with("persistentVolumeClaim: {claimName: tilewright-data}", "hostPath: {path: /data}")),
      "h:1");
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, ExitCode::kManifest);
}

}  // namespace
}  // namespace tilewright
