// A cluster with two kinds named TrainJob: Tilewright's and Kubeflow Trainer v2's. The names that
// the documentation and the programs print are not ambiguous there. TILEWRIGHT_TRAINER_CRD names
// the file of Trainer's CRD (`make kubeflow-crd`); without it the tests use one that has only its
// names.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>
#include <regex>
#include <set>

#include "tests/integration/crd_fixture.h"

namespace tilewright::testing {
namespace {

using ::testing::HasSubstr;

// The names of Trainer v2's CRD.
constexpr const char* kOtherCrd = R"(apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: trainjobs.trainer.kubeflow.org
spec:
  group: trainer.kubeflow.org
  scope: Namespaced
  names: {kind: TrainJob, listKind: TrainJobList, plural: trainjobs, singular: trainjob}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";
constexpr const char* kOtherJob = R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: other}
spec: {runtimeRef: {name: torch-distributed}}
)";

struct DocumentedCommand {
  std::string where;  // file:line
  std::string text;   // "kubectl get tj.tilewright.dev -A": the rest of the line
};

// The kubectl commands of the documentation, the chart and the programs.
std::vector<DocumentedCommand> documented_commands() {
  std::vector<DocumentedCommand> commands;
  for (const char* directory : {"README.md", "docs", "charts", "examples", "crds", "bench",
                                "controller", "worker", "common", "tests/e2e", "tests/cluster"}) {
    const std::filesystem::path root = source_dir() / directory;
    std::vector<std::filesystem::path> files = {root};
    if (std::filesystem::is_directory(root)) {
      files.clear();
      for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    }
    for (const std::filesystem::path& file : files) {
      const std::string extension = file.extension().string();
      if (extension != ".txt" && extension != ".md" && extension != ".yaml" &&
          extension != ".cpp" && extension != ".h") {
        continue;
      }
      std::ifstream in(file);
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        const std::size_t at = line.find("kubectl");
        if (at == std::string::npos) continue;
        commands.push_back({file.string() + ":" + std::to_string(number), line.substr(at)});
      }
    }
  }
  return commands;
}

class BothTrainJobKinds : public CrdTest {
 protected:
  void SetUp() override {
    CrdTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    installed_ = true;
    const char* file = getenv("TILEWRIGHT_TRAINER_CRD");
    const HttpResponse made =
        admin().post(kCrdsPath, parse_yaml(file == nullptr ? kOtherCrd : read_text(file)));
    ASSERT_EQ(made.status, 201) << made.message();
    const CommandResult waited = control_plane().wait_for_crd("trainjobs.trainer.kubeflow.org");
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
    created();
    ASSERT_EQ(create(kOtherJob).exit_code, 0);
  }
  void TearDown() override {
    if (installed_) {
      // Waits until it is gone, so that the next test can create it.
      const CommandResult removed =
          control_plane().kubectl({"delete", "crd", "trainjobs.trainer.kubeflow.org"});
      EXPECT_EQ(removed.exit_code, 0) << removed.error;
    }
    CrdTest::TearDown();
  }

  CommandResult create(const std::string& manifest) {
    const std::filesystem::path file = directory_.path() / "job.yaml";
    std::ofstream(file) << manifest;
    return control_plane().kubectl({"create", "-f", file});
  }
  static std::string names(const std::string& resource) {
    const CommandResult listed =
        control_plane().kubectl({"get", resource, "-o", "jsonpath={.items[*].metadata.name}"});
    return listed.exit_code == 0 ? listed.output : listed.error;
  }

 private:
  TemporaryDirectory directory_;
  bool installed_ = false;
};

TEST_F(BothTrainJobKinds, FullNamesSelectOneKind) {
  EXPECT_EQ(names("trainjobs.tilewright.dev"), "mrpc");
  EXPECT_EQ(names("trainjob.tilewright.dev"), "mrpc");
  EXPECT_EQ(names("tj.tilewright.dev"), "mrpc");
  EXPECT_EQ(names("twj"), "mrpc");
  EXPECT_EQ(names("trainjobs.trainer.kubeflow.org"), "other");
  // The plain name is that of one of the two groups, whichever kubectl finds first.
  EXPECT_THAT(names("trainjobs"), ::testing::AnyOf("mrpc", "other"));
}

TEST_F(BothTrainJobKinds, ManifestsSelectTheirKindByApiVersion) {
  EXPECT_THAT(create(api::testing::with("name: mrpc", "name: second")).output,
              HasSubstr("trainjob.tilewright.dev/second created"));
  EXPECT_EQ(control_plane().kubectl({"delete", "tj.tilewright.dev/second"}).exit_code, 0);
  const CommandResult scaled =
      control_plane().kubectl({"scale", "tj.tilewright.dev/mrpc", "--replicas=3"});
  EXPECT_EQ(scaled.exit_code, 0) << scaled.error;
  const CommandResult waited =
      control_plane().kubectl({"wait", "tj.tilewright.dev/mrpc",
                               "--for=jsonpath={.spec.worker.replicas}=3", "--timeout=60s"});
  EXPECT_EQ(waited.exit_code, 0) << waited.error;
}

TEST_F(BothTrainJobKinds, DocumentedCommandsSelectOurs) {
  const std::regex name(R"((^|[ `"'])((trainjobs?|tj)\.tilewright\.dev|twj)(?![-.\w]))");
  const std::regex explain(R"(explain (trainjobs?\S*) --api-version=([-./\w]+))");
  std::set<std::string> resources, explained;
  for (const DocumentedCommand& command : documented_commands()) {
    std::smatch found;
    if (std::regex_search(command.text, found, explain)) {
      explained.insert(found[1]);
      const CommandResult said =
          control_plane().kubectl({"explain", found[1], "--api-version=" + found[2].str()});
      EXPECT_EQ(said.exit_code, 0) << command.where << said.error;
      EXPECT_THAT(said.output, ::testing::ContainsRegex("GROUP: +tilewright.dev"));
    } else if (std::regex_search(command.text, found, name)) {
      resources.insert(found[2]);
    }
  }
  EXPECT_GE(explained.size(), 2U);
  EXPECT_GE(resources.size(), 1U);
  for (const std::string& resource : resources) EXPECT_EQ(names(resource), "mrpc") << resource;
}

// Every kubectl command of the documentation and the chart names the group.
TEST(DocumentedCommands, NameTheGroup) {
  // Not trainjob.yaml, trainjobs.tilewright.dev and the like.
  const std::regex ambiguous(
      R"((^|[ `"'])(trainjobs?|tj)(?![-.\w])|explain trainjobs?\.(?!.*--api-version))");
  const std::vector<DocumentedCommand> commands = documented_commands();
  for (const DocumentedCommand& command : commands) {
    EXPECT_FALSE(std::regex_search(command.text, ambiguous))
        << command.where << ": " << command.text;
  }
  EXPECT_GT(commands.size(), 20U);
}

}  // namespace
}  // namespace tilewright::testing
