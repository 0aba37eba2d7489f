// Whether Tilewright's trainer runs a PyTorchJob. tests/unit/controller/cli/validate_test.cpp has
// the reasons why it does not.
#include "controller/convert/native.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "controller/api/decode.h"
#include "tests/support/paths.h"

namespace tilewright::convert {
namespace {

using ::testing::HasSubstr;

NativeCheck checked(const std::string& yaml) {
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(read_yaml(yaml));
  EXPECT_TRUE(decoded.ok()) << sentences(decoded.errors);
  return check_native(decoded.job, decoded.positions);
}

constexpr const char* kTraining =
    "[python, run_glue.py, --model_name_or_path, m, --task_name, mrpc, --output_dir, o]";

std::string pytorchjob(const std::string& image, const std::string& master_command) {
  const auto replica = [&](const char* type, const std::string& command) {
    return fmt::format(
        "    {}: {{template: {{spec: {{containers: [{{name: pytorch, image: {}, command: "
        "{}}}]}}}}}}\n",
        type, image, command);
  };
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n"
         "  pytorchReplicaSpecs:\n" +
         (master_command.empty() ? "" : replica("Master", master_command)) +
         replica("Worker", kTraining);
}

TEST(NativeCheck, NamesTheScriptAndTheWorkers) {
  const auto guide = read_file(
      tilewright::testing::source_dir() / "tests/golden/guides/pytorchjob-bert-large.yaml", 1 << 20,
      ExitCode::kManifest);
  ASSERT_TRUE(guide.ok());
  EXPECT_EQ(checked(*guide).summary, "run_qa.py on 4 workers");
  EXPECT_EQ(checked(pytorchjob("x", "")).summary, "run_glue.py on 1 worker");
}

TEST(NativeCheck, ChecksTheMasterToo) {
  for (const auto& [image, fails] :
       {std::pair("x", false), std::pair("registry:5000/a/tilewright-worker:0.1.0", true),
        std::pair("tilewright-worker@sha256:00", true), std::pair("tilewright-workers", false)}) {
    const NativeCheck found = checked(pytorchjob(image, "[torchrun, train.py]"));
    ASSERT_EQ(found.errors.size(), 1U) << image;
    EXPECT_EQ(found.errors[0].path,
              "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command");
    EXPECT_EQ(found.errors[0].line, 6);
    EXPECT_EQ(found.summary, "");
    EXPECT_EQ(found.fails, fails) << image;
  }
}

// `command`: flow YAML. `more`: ", field: value" of the container.
std::string errors_of_worker(const std::string& command, bool master, const std::string& more) {
  std::string yaml = pytorchjob("tilewright-worker", master ? kTraining : "");
  const std::size_t from = yaml.rfind("[python");
  yaml.replace(from, yaml.find(']', from) + 1 - from, command + more);
  return sentences(checked(yaml).errors);
}

TEST(NativeCheck, AcceptsValuesThatOnlyThePodKnows) {
  const auto errors_of = [](const std::string& torchrun, const std::string& flags) {
    return errors_of_worker(
        fmt::format("[bash, -c, \"torchrun {} run_glue.py --model_name_or_path m {}\"]", torchrun,
                    flags),
        true, ", envFrom: [{prefix: R, configMapRef: {name: c}}]");
  };
  EXPECT_EQ(errors_of("--nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR",
                      "--task_name mrpc --output_dir /o/$RUN"),
            "");
  EXPECT_EQ(errors_of("--nnodes=$(WORLD_SIZE) --node_rank=$(RANK)",
                      "--task_name mrpc --output_dir /o/$(RUN)"),
            "");
  EXPECT_EQ(errors_of("", "--train_file $RDATA --do_train --output_dir o"), "");
  EXPECT_THAT(errors_of("", "--task_name mrpc --output_dir o --seed $RSEED"),
              HasSubstr("--seed: found $RSEED, whose value only the pod knows, expected a plain "
                        "value in env"));
  EXPECT_THAT(errors_of("", "--task_name mrpc --output_dir o --seed $RANK"),
              HasSubstr("--seed: found $RANK, whose value only the pod knows, expected a plain "
                        "value in the command"));
  EXPECT_THAT(errors_of("", "--task_name mrpc --output_dir o --unknown_flag $RANK"),
              HasSubstr("--unknown_flag: unknown flag"));
  EXPECT_THAT(errors_of("--bad$RANK", "--task_name mrpc --output_dir o"),
              HasSubstr("--bad$RANK: unknown flag"));
}

TEST(NativeCheck, AcceptsReferencesOfTheKubelet) {
  const std::string command =
      "[torchrun, --nnodes=$(WORLD_SIZE), --node_rank=$(RANK), --master_addr=$(MASTER_ADDR), "
      "run_glue.py, --model_name_or_path, m, --task_name, mrpc, --output_dir, o]";
  EXPECT_EQ(errors_of_worker(command, true, ""), "");
  EXPECT_THAT(errors_of_worker(command, false, ""),
              HasSubstr("--nnodes: found \"$(WORLD_SIZE)\", expected N or MIN:MAX"))
      << "only with a Master";
}

TEST(NativeCheck, KnowsWhichVariablesTheOperatorSets) {
  const auto errors_of = [](const std::string& flag, bool master, const std::string& more = "") {
    return errors_of_worker(fmt::format("[bash, -c, \"torchrun {} run_glue.py --model_name_or_path "
                                        "m --task_name mrpc --output_dir o\"]",
                                        flag),
                            master, more);
  };
  for (const char* flag : {"--nnodes=$WORLD_SIZE", "--node_rank=$RANK",
                           "--master_port=$MASTER_PORT", "--node_rank=$PET_NODE_RANK"}) {
    EXPECT_EQ(errors_of(flag, true), "") << flag;
    EXPECT_THAT(errors_of(flag, false), HasSubstr("found \"\", expected ")) << flag;
  }
  for (const char* flag :
       {"--node_rank=$GROUP_RANK", "--node_rank=$LOCAL_RANK", "--max_restarts=$PET_MAX_RESTARTS"}) {
    EXPECT_THAT(errors_of(flag, true), HasSubstr("found \"\", expected an integer")) << flag;
  }
  // A plain value has no effect if the operator sets the variable too.
  const std::string given = ", env: [{name: RANK, value: x}]";
  EXPECT_EQ(errors_of("--node_rank=$RANK", true, given), "");
  EXPECT_THAT(errors_of("--node_rank=$RANK", false, given), HasSubstr("found \"x\", expected"));
}

}  // namespace
}  // namespace tilewright::convert
