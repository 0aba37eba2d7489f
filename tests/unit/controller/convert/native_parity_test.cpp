// A PyTorchJob on the worker image and the TrainJob that `tilewright convert` makes of it have the
// same numbers of workers and the same global batch, and therefore the same weights.
#include <gtest/gtest.h>

#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/cluster/pytorch_view.h"
#include "controller/convert/convert.h"
#include "controller/policy/elasticity.h"

namespace tilewright::convert {
namespace {

struct Case {
  std::string spec;  // fields of spec, two spaces
  std::string replicas;
  std::string launcher;
  std::string flags;
};

class NativeParity : public ::testing::TestWithParam<Case> {};

std::string manifest(const Case& parts) {
  const std::string pod =
      "      template:\n        spec:\n          volumes: [{name: disk, persistentVolumeClaim: "
      "{claimName: disk}}]\n          containers:\n          - name: pytorch\n            image: "
      "tilewright-worker:0.1.0\n            command: [bash, -c]\n            args: [\"" +
      parts.launcher +
      " /workspace/run_qa.py --model_name_or_path m --dataset_name squad --output_dir "
      "/data/o_$(date "
      "+%F) " +
      parts.flags +
      "\"]\n            volumeMounts: [{name: disk, mountPath: /data}]\n            resources: "
      "{limits: {cpu: 2, memory: 4Gi}}\n";
  std::string text =
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: qa}\nspec:\n" + parts.spec +
      "  pytorchReplicaSpecs:\n";
  if (parts.replicas.find("Master") != std::string::npos) text += "    Master:\n" + pod;
  return text + "    Worker:\n      replicas: 4\n" + pod;
}

TEST_P(NativeParity, HasTheSizesOfItsTrainJob) {
  const api::DecodedPyTorchJob decoded =
      api::decode_pytorchjob_document(read_yaml(manifest(GetParam())));
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  const Conversion conversion = convert(decoded.job, decoded.positions);
  ASSERT_TRUE(conversion.ok()) << sentences(conversion.errors);
  api::TrainJob made =
      api::decode_object(nlohmann::json(conversion.tree), api::FieldValidation::kStrict).job;
  api::apply_defaults(made);
  api::PyTorchJob job = decoded.job;
  api::apply_defaults(job);
  const cluster::JobView view = cluster::view_of(job);
  ASSERT_TRUE(view.trains_natively);
  EXPECT_EQ(api::nominal_workers(view.job), api::nominal_workers(made));
  EXPECT_EQ(api::max_workers(view.job), api::max_workers(made));
  EXPECT_EQ(api::global_batch(view.job), api::global_batch(made));
  EXPECT_EQ(api::virtual_shards(view.job), api::virtual_shards(made));
  EXPECT_EQ(api::is_exact(view.job), api::is_exact(made));
  EXPECT_EQ(view.job.spec.nproc_per_node, made.spec.nproc_per_node);
  const policy::Sizes of_view = policy::sizes_of(view.job), of_job = policy::sizes_of(made);
  EXPECT_EQ(of_view.min, of_job.min);
  EXPECT_EQ(of_view.max, of_job.max);
  EXPECT_EQ(of_view.desired, of_job.desired);
}

const std::string kElastic = "  elasticPolicy: {minReplicas: 1, maxReplicas: 4, maxRestarts: 10}\n";

INSTANTIATE_TEST_SUITE_P(
    All, NativeParity,
    ::testing::Values(Case{kElastic, "", "torchrun", "--per_device_train_batch_size 12"},
                      Case{kElastic + "  nprocPerNode: \"2\"\n", "", "torchrun",
                           "--per_device_train_batch_size=2 --gradient_accumulation_steps 3"},
                      Case{kElastic + "  nprocPerNode: \"2\"\n", "", "torchrun --nproc_per_node=3",
                           ""},
                      Case{kElastic + "  nprocPerNode: \"2\"\n", "", "python", "--exact False"},
                      Case{"  elasticPolicy: {minReplicas: 1, maxReplicas: 16}\n", "", "torchrun",
                           "--virtual_shards 32"},
                      Case{"  nprocPerNode: cpu\n", "Master", "torchrun", "--gemm_backend onednn"},
                      Case{kElastic, "Master", "torchrun", ""}));

}  // namespace
}  // namespace tilewright::convert
