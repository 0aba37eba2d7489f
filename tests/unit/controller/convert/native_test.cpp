// Whether Tilewright's trainer runs a PyTorchJob. tests/unit/controller/cli/validate_test.cpp has the
// reasons why it does not.
#include "controller/convert/native.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "controller/api/decode.h"
#include "tests/support/paths.h"

namespace tilewright::convert {
namespace {

NativeCheck checked(const std::string& yaml) {
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(read_yaml(yaml));
  EXPECT_TRUE(decoded.ok()) << sentences(decoded.errors);
  return check_native(decoded.job, decoded.positions);
}

std::string pytorchjob(const std::string& image, const std::string& master_command) {
  const auto replica = [&](const char* type, const std::string& command) {
    return fmt::format(
        "    {}: {{template: {{spec: {{containers: [{{name: pytorch, image: {}, command: "
        "{}}}]}}}}}}\n",
        type, image, command);
  };
  const std::string training =
      "[python, run_glue.py, --model_name_or_path, m, --task_name, mrpc, --output_dir, o]";
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n"
         "  pytorchReplicaSpecs:\n" +
         (master_command.empty() ? "" : replica("Master", master_command)) +
         replica("Worker", training);
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

TEST(NativeCheck, AcceptsValuesThatOnlyThePodKnows) {
  const auto errors_of = [](const std::string& torchrun, const std::string& flags) {
    std::string yaml = pytorchjob("tilewright-worker", "");
    const std::size_t from = yaml.find("[python");
    const std::size_t end = yaml.find(']', from) + 1;
    yaml.replace(from, end - from,
                 fmt::format("[bash, -c, \"torchrun {} run_glue.py --model_name_or_path m {}\"], "
                             "envFrom: [{{configMapRef: {{name: c}}}}]",
                             torchrun, flags));
    return sentences(checked(yaml).errors);
  };
  EXPECT_EQ(errors_of("--nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR",
                      "--task_name mrpc --output_dir /o/$RUN"),
            "");
  EXPECT_EQ(errors_of("", "--train_file $DATA --do_train --output_dir o"), "");
  EXPECT_THAT(errors_of("", "--task_name mrpc --output_dir o --seed $SEED"),
              ::testing::HasSubstr("--seed: found $SEED, whose value only the pod knows"));
}

}  // namespace
}  // namespace tilewright::convert
