// Gives bad manifests to both commands that read them. Each must print one message with line and
// field and leave no files. Also tests --version of both programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/exit_codes.h"
#include "tests/integration/inputs.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

using testing::Inputs;
using testing::RunningProgram;

struct BadManifest {
  std::string name;
  std::string line;  // text of kManifest that `by` replaces
  std::string by;
  std::vector<std::string> said;
};
void PrintTo(const BadManifest& bad, std::ostream* out) { *out << bad.name; }

constexpr const char* kManifest = R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: tiny}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 2}
  trainer:
    task: mrpc
    model: models:.
    data: data:.
    output: output:out
    per_device_train_batch_size: 4
  worker:
    replicas: 2
    image: tilewright-worker
  volumes:
    - {name: models, local: model}
    - {name: data, local: data}
    - {name: output, local: .}
)";

std::vector<BadManifest> bad_manifests() {
  return {
      {"UnknownField",
       "    replicas: 2",
       "    replica: 2",
       {"job.yaml:13: spec.worker.replica", "did you mean replicas?"}},
      {"UnknownFlag",
       "    per_device_train_batch_size: 4",
       "    per_device_batch_size: 4",
       {"job.yaml:11: spec.trainer.per_device_batch_size", "did you mean "}},
      {"WrongType",
       "    replicas: 2",
       "    replicas: two",
       {"job.yaml:13: spec.worker.replicas: found the string \"two\", expected an integer"}},
      {"WrongTypeInThePodTemplate",
       "    replicas: 2",
       "    replicas: 2\n    podTemplate: {metadata: {labels: x}}",
       {"job.yaml:14: spec.worker.podTemplate.metadata.labels: found the string \"x\", expected an "
        "object"}},
      {"MinAboveMax",
       "minReplicas: 1",
       "minReplicas: 3",
       {"job.yaml:5: spec.elasticPolicy.minReplicas: found 3, expected at most 2"}},
      {"VolumeWithoutLocalPath",
       "    - {name: data, local: data}",
       "    - {name: data, persistentVolumeClaim: {claimName: data}}",
       {"job.yaml:17: spec.volumes[1].local: found nothing, expected "}},
      {"MoreShardsThanTheBatchHas",
       "    per_device_train_batch_size: 4",
       "    per_device_train_batch_size: 4\n    virtual_shards: 16",
       {"job.yaml:12: spec.trainer.virtual_shards: found 16, expected ", "8"}},
      {"MoreReplicasThanTheBatchHas",
       "maxReplicas: 2",
       "maxReplicas: 9",
       {"job.yaml:5: spec.elasticPolicy.maxReplicas: found 9 ", "expected at most 8, "}},
  };
}

class BadManifests : public ::testing::TestWithParam<BadManifest> {};
INSTANTIATE_TEST_SUITE_P(Tilewright, BadManifests, ::testing::ValuesIn(bad_manifests()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(BadManifests, AreRejectedByUpAndValidateWithOneMessage) {
  const Inputs inputs;
  std::string text = kManifest;
  const std::size_t at = text.find(GetParam().line);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().line.size(), GetParam().by);
  inputs.write("job.yaml", text);
  const auto before = testing::content_of(inputs.folder());
  for (const char* command : {"up", "validate"}) {
    RunningProgram program(testing::program("tilewright"), {command, "job.yaml"}, inputs.folder());
    const int code = program.wait();
    const std::string& said = program.output();
    std::size_t place = 0;
    for (const std::string& part : GetParam().said) {
      place = said.find(part, place);
      ASSERT_NE(place, std::string::npos) << command << ": \"" << part << "\" is missing in\n"
                                          << said;
    }
    EXPECT_EQ(testing::content_of(inputs.folder()), before) << command << " left files";
    // A manifest without `local` is valid for a cluster, and `validate` adds that to its message.
    const bool cluster = GetParam().name == "VolumeWithoutLocalPath";
    if (cluster && command == std::string("validate")) continue;
    EXPECT_EQ(code, static_cast<int>(ExitCode::kManifest)) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

TEST(GoodManifest, IsAccepted) {
  const Inputs inputs;
  inputs.write("job.yaml", kManifest);
  RunningProgram program(testing::program("tilewright"), {"validate", "job.yaml"}, inputs.folder());
  EXPECT_EQ(program.wait(), 0) << program.output();
}

TEST(Version, OfBothProgramsContainsTheCommit) {
  const Inputs inputs;
  for (const std::string name : {"tilewright", "tilewright-worker"}) {
    RunningProgram program(testing::program(name), {"--version"}, inputs.folder());
    EXPECT_EQ(program.wait(), 0);
    EXPECT_THAT(program.output(), ::testing::MatchesRegex(
                                      name + " [0-9]+\\.[0-9]+\\.[0-9]+ \\([0-9A-Za-z._-]+\\)\n"));
  }
}

TEST(StandardOutput, ThatCannotBeWrittenIsAnError) {
  const Inputs inputs;
  const std::string manifest = testing::source_dir() / "examples/cluster/trainjob.yaml";
  const std::vector<std::vector<std::string>> commands = {{"tilewright", "crd"},
                                                          {"tilewright", "reference"},
                                                          {"tilewright", "render", manifest},
                                                          {"tilewright-worker", "--version"}};
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> arguments = {"-c", "exec \"$0\" \"$@\" > /dev/full",
                                          testing::program(command[0])};
    arguments.insert(arguments.end(), command.begin() + 1, command.end());
    RunningProgram program("/bin/sh", arguments, inputs.folder());
    EXPECT_EQ(program.wait(), static_cast<int>(ExitCode::kOutputUnavailable)) << command[1];
    EXPECT_THAT(program.output(),
                ::testing::EndsWith(command[0] +
                                    ": standard output: cannot write: No space left on device\n"));
  }
}

TEST(StandardOutput, MayBeClosedByItsReader) {
  const Inputs inputs;
  for (const char* command : {"crd", "--version"}) {
    // A pipe whose only reader has closed it.
    RunningProgram program("/bin/bash",
                           {"-c",
                            "trap '' PIPE; mkfifo pipe; exec 3<>pipe 4>pipe 3>&-; "
                            "\"$0\" \"$@\" >&4; echo $? >&2; rm pipe",
                            testing::program("tilewright"), command},
                           inputs.folder());
    program.wait();
    EXPECT_EQ(program.output(), "0\n");
  }
}

}  // namespace
}  // namespace tilewright
