#include "controller/cli/validate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "common/base/exit_codes.h"
#include "common/base/file_descriptor.h"
#include "controller/cli/convert.h"
#include "controller/cli/manifest.h"
#include "controller/cli/render.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"
#include "tests/unit/controller/client/scripted_server.h"

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
    return validate_files(files, std::nullopt, out_, err_);
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::ostringstream out_;
  std::ostringstream err_;
};

// As after a pipe from `kubectl get -o yaml`. A program that starts others may use a socket for it.
TEST_F(Cli, ReadsAManifestFromStandardInput) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const FileDescriptor input(ends[0]);
  FileDescriptor writer(ends[1]);
  const FileDescriptor before(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  ASSERT_EQ(dup2(input.get(), STDIN_FILENO), STDIN_FILENO);
  const std::string text = kManifest;
  ASSERT_EQ(write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  writer.reset();
  const Result<Input> manifest = read_manifest("-");
  dup2(before.get(), STDIN_FILENO);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest->name, "standard input");
  EXPECT_EQ(manifest->text, kManifest);
}

TEST_F(Cli, ValidateSummarizesAValidManifest) {
  const auto good = file("good.yaml", kManifest);
  EXPECT_EQ(validate({good}), 0);
  EXPECT_EQ(out_.str(),
            good.string() +
                ": valid: mrpc on 2 workers (1 to 4) with cpu 1 and memory 2Gi each, 32 "
                "examples per step in 8 shards; runs on this machine and in a cluster\n");
  EXPECT_EQ(err_.str(), "");
}

// The command against an API server that answers every request alike.
class ClusterCli : public Cli {
 protected:
  int validate_against(int status, const std::string& body) {
    const kube::ScriptedServer server(
        [&](kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
          connection.answer(request.method == "POST" ? status : 403,
                            request.method == "POST" ? body : denial("list"));
        });
    ClusterOptions options;
    options.connection.kubeconfig =
        file("kubeconfig", R"(clusters: [{name: test, cluster: {server: ")" + server.url() + R"("}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
current-context: test
)")
            .string();
    server_ = server.url();
    out_.str("");
    err_.str("");
    return validate_in_cluster({{"job.yaml", kManifest}}, options, out_, err_);
  }
  // The API server's response to a user without a role.
  static std::string denial(const std::string& verb) {
    return R"({"kind":"Status","code":403,"reason":"Forbidden","message":"trainjobs is forbidden: )"
           R"(User \"me\" cannot )" +
           verb + R"( resource"})";
  }
  std::string server_;
};

TEST_F(ClusterCli, ValidateFailsIfTheServerDoesNotAnswerTheDryRun) {
  for (const auto& [status, body] : std::initializer_list<std::pair<int, std::string>>{
           {200, "<html>Sign in</html>"},
           {302, ""},
           {401, R"({"kind":"Status","code":401,"reason":"Unauthorized"})"},
           {404, "no such page"},
       }) {
    EXPECT_NE(validate_against(status, body), 0) << status;
    EXPECT_EQ(out_.str().find("accepted"), std::string::npos) << status << ": " << out_.str();
  }
}

TEST_F(ClusterCli, ValidateSaysThatAJobWithoutADryRunWasOnlyPartlyChecked) {
  EXPECT_EQ(validate_against(403, denial("create")), 0) << err_.str();
  EXPECT_EQ(out_.str(), "job.yaml: only partly checked by " + server_ + " in namespace default\n");
  EXPECT_NE(err_.str().find("job.yaml: not checked: whether the API server accepts the job: no "
                            "permission to check it: "),
            std::string::npos)
      << err_.str();
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
  EXPECT_NE(out_.str().find("runs in a cluster; for tilewright up the volume data needs local\n"),
            std::string::npos)
      << out_.str();
  EXPECT_EQ(err_.str(), "") << "nothing is wrong with it";
  const auto with_secret = file(
      "s.yaml", with("    sharedMemory: 64Mi",
                     "    env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}]",
                     with("      local: data\n", "", with("      local: ../models\n", ""))));
  EXPECT_EQ(validate({with_secret}), 0) << err_.str();
  EXPECT_NE(out_.str().find("; for tilewright up the volumes models and data need local and the "
                            "variable HF_TOKEN needs a value\n"),
            std::string::npos)
      << out_.str();
  const auto local_only =
      file("l.yaml", with("      persistentVolumeClaim: {claimName: tilewright-data}\n", ""));
  EXPECT_EQ(validate({local_only}), 0);
  EXPECT_NE(out_.str().find("runs on this machine, not in a cluster\n"), std::string::npos);
  EXPECT_EQ(err_.str(), local_only.string() +
                            ":33: spec.volumes[1]: found no volume source for data, expected one "
                            "such as persistentVolumeClaim (in a cluster)\n");
}

TEST_F(Cli, ValidateListsTheResourcesOfAWorker) {
  EXPECT_EQ(
      validate({file("gpu.yaml", with("memory: 2Gi", "memory: 2Gi\n      nvidia.com/gpu: 1"))}), 0);
  EXPECT_NE(out_.str().find(" with cpu 1, memory 2Gi and nvidia.com/gpu 1 each, "),
            std::string::npos)
      << out_.str();
  EXPECT_NE(err_.str().find("Tilewright computes on CPUs only"), std::string::npos) << err_.str();
}

TEST_F(Cli, ValidateRejectsAManifestThatCanRunNowhere) {
  const auto nowhere =
      file("n.yaml", with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "",
                          with("      local: ../models\n", "")));
  EXPECT_EQ(validate({nowhere}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Cli, ValidateSaysOnceWhatIsWrong) {
  const std::string cluster_only =
      with("      local: data\n", "",
           with("      local: ../models\n", "", with("      local: ../output\n", "")));
  const auto no_source =
      file("n.yaml",
           with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "", cluster_only));
  EXPECT_EQ(validate({no_source}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(err_.str(), no_source.string() +
                            ":32: spec.volumes[1]: found no source for data, expected a volume "
                            "source such as persistentVolumeClaim, a local directory, or both\n");
  err_.str("");
  const auto host_path = file("h.yaml", with("persistentVolumeClaim: {claimName: tilewright-data}",
                                             "hostPath: {path: /d}", cluster_only));
  EXPECT_EQ(validate({host_path}), static_cast<int>(ExitCode::kManifest));
  EXPECT_EQ(std::ranges::count(err_.str(), '\n'), 1) << "nothing about local\n" << err_.str();
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
                            ": valid PyTorchJob: in the image tilewright-worker, Tilewright's "
                            "trainer runs run_qa.py on 2 workers; tilewright convert makes a "
                            "TrainJob of it\n");
  const std::string place = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]";
  EXPECT_EQ(err_.str(),
            path.string() + ":14: " + place +
                ".command[6]: --no_cuda: Tilewright computes on CPUs only (warning)\n" +
                path.string() + ":15: " + place +
                ".env[0]: LD_PRELOAD libtcmalloc.so: the worker allocates its memory at the start "
                "and uses no OpenMP, so another allocator or runtime has no effect (warning)\n");
}

TEST_F(Cli, ValidateSaysWhyTilewrightsTrainerDoesNotRunAPyTorchJob) {
  const std::string other = with("tilewright-worker:0.1.0", "pytorch/pytorch", kPyTorchJob);
  const auto path = file("torch.yaml", with("run_qa.py", "train.py", other));
  EXPECT_EQ(validate({path}), 0) << err_.str();
  EXPECT_EQ(out_.str(), path.string() +
                            ": valid PyTorchJob: the operator runs it with its own image; "
                            "Tilewright's trainer does not run it\n");
  EXPECT_EQ(err_.str().rfind(path.string() + ":13: spec.pytorchReplicaSpecs.Worker.template.spec."
                                             "containers[0].command: found \"train.py\"",
                             0),
            0U)
      << err_.str();
  EXPECT_NE(err_.str().find(" (with Tilewright's trainer)\n"), std::string::npos);
  err_.str("");
  out_.str("");
  const auto flag = file("flag.yaml", with("--no_cuda", "--doc_strife, \"128\"", other));
  EXPECT_EQ(validate({flag}), 0) << err_.str();
  EXPECT_EQ(err_.str(), flag.string() +
                            ":14: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]."
                            "command[6]: --doc_strife: unknown flag; did you mean --doc_stride? "
                            "(with Tilewright's trainer)\n");
}

// The pods would fail at once.
TEST_F(Cli, ValidateRejectsAWorkerImageWithACommandThatItDoesNotRun) {
  const std::string place = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command";
  const struct {
    const char* what;
    const char* replacement;
    std::string message;
  } cases[] = {
      {"--no_cuda", "--doc_strife, \"128\"",
       ":14: " + place + "[6]: --doc_strife: unknown flag; did you mean --doc_stride?"},
      {"--no_cuda", "--fp16", ":14: " + place + "[6]: --fp16: not supported: "},
      {"squad,", "imdb,", ":13: " + place + "[4]: --dataset_name: found imdb, expected glue, or "},
      {"--output_dir, /data/out", "--seed, \"1\"",
       ":13: " + place + ": --output_dir is missing, expected the "},
      {"--no_cuda", "--load_best_model_at_end",
       ":14: " + place + "[6]: found --load_best_model_at_end with --eval_strategy=no, "},
      {"torchrun, ", "torchrun, --nproc_per_node=gpu, ",
       ":13: " + place + "[1]: found gpu, expected auto, cpu or an integer from 1 to "},
      {"spec:\n  pytorch", "spec:\n  nprocPerNode: gpu\n  pytorch",
       ":5: spec.nprocPerNode: found gpu, expected auto, cpu or an integer from 1 to "},
      {"run_qa.py", "run_mlm.py", ":13: " + place + ": found \"run_mlm.py\""},
      {"[torchrun, run_qa.py", "[sleep, run_qa.py", ":13: " + place + ": found "},
  };
  for (const auto& c : cases) {
    err_.str("");
    const auto path = file("torch.yaml", with(c.what, c.replacement, kPyTorchJob));
    EXPECT_EQ(validate({path}), static_cast<int>(ExitCode::kManifest)) << c.replacement;
    EXPECT_EQ(err_.str().rfind(path.string() + c.message, 0), 0U) << c.message << "\n"
                                                                  << err_.str();
    EXPECT_EQ(std::ranges::count(err_.str(), '\n'), 1) << err_.str();
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(Cli, ValidateDoesNotCheckAWorkerImageThatStartsTheWorkerItself) {
  const std::string trains = with("[torchrun, run_qa.py", "[tilewright-worker, train", kPyTorchJob);
  for (const std::string& text :
       {trains, with("command: [torchrun, run_qa.py", "args: [train", kPyTorchJob)}) {
    out_.str("");
    const auto path = file("torch.yaml", text);
    EXPECT_EQ(validate({path}), 0) << err_.str();
    EXPECT_EQ(out_.str(), path.string() +
                              ": valid PyTorchJob: its pods start tilewright-worker themselves; "
                              "the flags are not checked\n");
  }
}

TEST_F(Cli, ValidateNamesTheKindThatWasMeant) {
  const std::string expected =
      ", expected TrainJob (tilewright.dev/v1alpha1) or PyTorchJob (kubeflow.org/v1)";
  const std::pair<std::string, std::string> cases[] = {
      {with("PyTorchJob", "PytorchJob", kPyTorchJob),
       ":2: kind: found \"PytorchJob\"" + expected + "; did you mean PyTorchJob?\n"},
      {with("TrainJob", "Pod", kManifest), ":2: kind: found \"Pod\"" + expected + "\n"},
      {with("tilewright.dev/v1alpha1", "trainer.kubeflow.org/v1alpha1", kManifest),
       ":1: apiVersion: found the string \"trainer.kubeflow.org/v1alpha1\", expected "
       "tilewright.dev/v1alpha1: this is a TrainJob of Kubeflow Trainer v2\n"},
      {with("PyTorchJob", "PytorchJob", kPyTorchJob) + "---\nkind: Secret\n",
       ":2: kind: found \"PytorchJob\"" + expected + "; did you mean PyTorchJob?\nkind.yaml:"},
  };
  for (const auto& [text, message] : cases) {
    err_.str("");
    const auto path = file("kind.yaml", text);
    EXPECT_EQ(validate({path}), static_cast<int>(ExitCode::kManifest)) << text;
    std::string said = err_.str();
    for (std::size_t at = said.find(path.string()); at != std::string::npos;
         at = said.find(path.string(), at)) {
      said.replace(at, path.string().size(), at == 0 ? "" : "kind.yaml");
    }
    EXPECT_EQ(said.rfind(message, 0), 0U) << said;
  }
}

TEST_F(Cli, ValidateReadsTheItemsOfAList) {
  std::string items;
  std::istringstream lines(kManifest);
  for (std::string line; std::getline(lines, line);) {
    items += (items.empty() ? "- " : "  ") + line + "\n";
  }
  const auto list = file("list.yaml", "apiVersion: v1\nkind: List\nitems:\n" + items +
                                          "- {apiVersion: v1, kind: Secret}\n");
  EXPECT_EQ(validate({list}), 0) << err_.str();
  EXPECT_NE(out_.str().find("list.yaml: valid: mrpc on 2 workers"), std::string::npos);
  EXPECT_NE(err_.str().find(": not checked: the kind is Secret\n"), std::string::npos);
  const auto bad = file("bad.yaml", with("replicas: 2", "replicas: 0",
                                         "apiVersion: v1\nkind: List\nitems:\n" + items));
  EXPECT_EQ(validate({bad}), static_cast<int>(ExitCode::kManifest));
  EXPECT_NE(err_.str().find("bad.yaml:25: spec.worker.replicas: found 0, expected"),
            std::string::npos)
      << err_.str();
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

// The message for insecure-skip-tls-verify names this flag. PyTorchJobs cause no request.
TEST_F(Cli, ValidateUsesAClusterWithoutVerificationOnRequest) {
  const auto kubeconfig = file("config",
                               "current-context: c\n"
                               "contexts: [{name: c, context: {cluster: c}}]\n"
                               "clusters: [{name: c, cluster: {server: 'https://localhost', "
                               "insecure-skip-tls-verify: true}}]\n");
  const auto job = file("job.yaml", kPyTorchJob);
  const auto exit_code_with = [&](const std::string& flag) {
    CLI::App app;
    int exit_code = -1;
    add_validate_command(app, exit_code);
    app.parse("validate " + job.string() + " --cluster --kubeconfig " + kubeconfig.string() + flag);
    return exit_code;
  };
  EXPECT_EQ(exit_code_with(""), static_cast<int>(ExitCode::kUsage));
  EXPECT_EQ(exit_code_with(" --allow_insecure"), 0);
}

TEST_F(Cli, ConvertWritesAValidTrainJob) {
  const auto path = file("torch.yaml", kPyTorchJob);
  const Result<std::string> converted = convert_file(path, err_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(validate({file("train.yaml", *converted)}), 0) << *converted << err_.str();
  EXPECT_NE(converted->find("    dataset_name: squad\n"), std::string::npos) << *converted;
}

TEST_F(Cli, ConvertAndValidateWarnOfAnOutputThatEndsWithItsPod) {
  const auto no_volume = file("none.yaml", with("/data/out", "/tmp/out", kPyTorchJob));
  ASSERT_TRUE(convert_file(no_volume, err_).ok());
  const std::string place =
      ":14: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command[7]: --output_dir ";
  EXPECT_EQ(err_.str(), no_volume.string() + place +
                            "/tmp/out: on no volume, so the trained model ends with its pod and no "
                            "restart finds a checkpoint; name a persistentVolumeClaim instead of "
                            "the emptyDir (warning)\n");
  err_.str("");
  const auto empty_dir = file(
      "empty.yaml", with("persistentVolumeClaim: {claimName: disk}", "emptyDir: {}", kPyTorchJob));
  const Result<std::string> converted = convert_file(empty_dir, err_);
  ASSERT_TRUE(converted.ok());
  const std::string warning =
      empty_dir.string() + place +
      "/data/out: on the emptyDir disk, so the trained model ends with its pod and no restart "
      "finds a checkpoint; name a persistentVolumeClaim instead (warning)\n";
  EXPECT_EQ(err_.str(), warning);
  err_.str("");
  EXPECT_EQ(validate({empty_dir}), 0);
  EXPECT_NE(err_.str().find(warning), std::string::npos) << err_.str();
  err_.str("");
  EXPECT_EQ(validate({file("train.yaml", *converted)}), 0);
  EXPECT_NE(err_.str().find(" spec.trainer.output: found the emptyDir disk: the output ends with "
                            "its pod and no restart finds a checkpoint; use a volume such as a "
                            "persistentVolumeClaim (warning)\n"),
            std::string::npos)
      << err_.str();
}

TEST_F(Cli, ConvertWritesToTheFileThatALinkNames) {
  const auto path = file("torch.yaml", kPyTorchJob);
  const auto target = file("target.yaml", "before");
  const auto link = directory_.path() / "link.yaml";
  std::filesystem::create_symlink(target, link);
  CLI::App app;
  int exit_code = 0;
  add_convert_command(app, exit_code);
  app.parse("convert " + path.string() + " -o " + link.string());
  EXPECT_EQ(exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(tilewright::testing::read_text(target), convert_file(path, err_).value());
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
  const Result<std::string> rendered = render_file(file("good.yaml", kManifest), err_, "h:1");
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

TEST_F(Cli, RenderNamesTheObjectsThatItIgnores) {
  const auto path = file("two.yaml", "kind: PersistentVolumeClaim\n---\n" + std::string(kManifest));
  ASSERT_TRUE(render_file(path, err_, "h:1").ok());
  EXPECT_EQ(err_.str(),
            path.string() + ":1: ignored: the kind is PersistentVolumeClaim (warning)\n");
}

TEST_F(Cli, RenderPrintsThePodGroupOfTheOperatorsGangScheduler) {
  const Result<std::string> rendered =
      render_file(file("good.yaml", kManifest), err_, "h:1", "volcano");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_NE(rendered->find("apiVersion: scheduling.volcano.sh/v1beta1\n"), std::string::npos);
  EXPECT_NE(rendered->find("schedulerName: volcano\n"), std::string::npos);
}

TEST_F(Cli, RenderAsksForAtMostAsManyMembersAsPods) {
  const auto path =
      file("gang.yaml", with("cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 4}"));
  const Result<std::string> rendered = render_file(path, err_, "h:1");
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_NE(rendered->find("minMember: 2\n"), std::string::npos) << *rendered;
}

TEST_F(Cli, RenderRejectsAManifestThatIsInvalidInACluster) {
  const Result<std::string> rendered = render_file(
      file("h.yaml",
           with("persistentVolumeClaim: {claimName: tilewright-data}", "hostPath: {path: /data}")),
      err_, "h:1");
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, ExitCode::kManifest);
}

}  // namespace
}  // namespace tilewright
