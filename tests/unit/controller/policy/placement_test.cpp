#include "controller/policy/placement.h"

#include "controller/policy/messages.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using testing::JobSimulator;

Node node(const std::string& name, const std::string& cpu, const std::string& memory,
          std::map<std::string, std::string> labels = {}) {
  return {name,
          false,
          std::move(labels),
          {{"cpu", *api::parse_quantity(cpu)}, {"memory", *api::parse_quantity(memory)}}};
}

api::TrainJob job_requesting(const std::string& cpu, const std::string& memory) {
  api::TrainJob job = testing::make_job();
  job.spec.worker.resources = {{"cpu", *api::parse_quantity(cpu)},
                               {"memory", *api::parse_quantity(memory)}};
  return job;
}

TEST(Placement, AcceptsAJobIfSomeNodeIsLargeEnough) {
  const api::TrainJob job = job_requesting("4", "8Gi");
  EXPECT_FALSE(find_unschedulable_reason(job, {node("a", "2", "16Gi"), node("b", "4", "8192Mi")}));
  EXPECT_FALSE(find_unschedulable_reason(job, {})) << "an autoscaler may have removed all nodes";
}

TEST(Placement, ReportsTheRequestAndTheLargestNodes) {
  const api::TrainJob job = job_requesting("8", "8Gi");
  const auto blocked_reason =
      find_unschedulable_reason(job, {node("a", "4", "64Gi"), node("b", "7500m", "32Gi")});
  ASSERT_TRUE(blocked_reason);
  EXPECT_EQ(message_of(job, *blocked_reason).reason, "LargerThanAnyNode");
  EXPECT_EQ(
      message_of(job, *blocked_reason).text,
      "a worker requests cpu 8, memory 8Gi, more than any single node can allocate: the eligible "
      "nodes (2 of 2) have at most cpu 7500m, memory 64Gi; lower spec.worker.resources or add a "
      "larger node");
}

TEST(Placement, NeedsAllResourcesOnOneNode) {
  EXPECT_TRUE(find_unschedulable_reason(job_requesting("8", "32Gi"),
                                        {node("a", "4", "64Gi"), node("b", "16", "16Gi")}));
}

TEST(Placement, ReportsAResourceThatNoNodeHas) {
  api::TrainJob job = job_requesting("1", "1Gi");
  job.spec.worker.resources["example.com/device"] = *api::parse_quantity("1");
  const auto blocked_reason = find_unschedulable_reason(job, {node("a", "4", "64Gi")});
  ASSERT_TRUE(blocked_reason);
  EXPECT_NE(message_of(job, *blocked_reason).text.find("example.com/device 0"), std::string::npos)
      << message_of(job, *blocked_reason).text;
}

// As the scheduler does: a PyTorchJob may have limits such as nvidia.com/gpu: 0.
TEST(Placement, AcceptsAnAmountOfZeroOfAResourceThatNoNodeHas) {
  api::TrainJob job = job_requesting("1", "1Gi");
  job.spec.worker.resources["example.com/device"] = *api::parse_quantity("0");
  EXPECT_FALSE(find_unschedulable_reason(job, {node("a", "4", "64Gi")}));
}

TEST(Placement, ChecksTheNodeSelectorAndCordons) {
  api::TrainJob job = job_requesting("4", "8Gi");
  job.spec.worker.node_selector = {{"amx", "true"}};
  std::vector<Node> nodes = {node("a", "64", "64Gi"), node("b", "64", "64Gi", {{"amx", "false"}})};
  auto blocked_reason = find_unschedulable_reason(job, nodes);
  ASSERT_TRUE(blocked_reason);
  EXPECT_EQ(message_of(job, *blocked_reason).reason, "NoMatchingNode");
  EXPECT_EQ(
      message_of(job, *blocked_reason).text,
      "0/2 nodes match spec.worker.nodeSelector (amx=true); workers start when a node has these "
      "labels");
  nodes.push_back(node("c", "64", "64Gi", {{"amx", "true"}}));
  EXPECT_FALSE(find_unschedulable_reason(job, nodes));
  nodes.back().cordoned = true;
  blocked_reason = find_unschedulable_reason(job, nodes);
  ASSERT_TRUE(blocked_reason);
  EXPECT_EQ(message_of(job, *blocked_reason).reason, "NodesCordoned");
}

TEST(Placement, IsReportedAtTheFirstReconcileAndClearedWhenANodeAppears) {
  JobSimulator sim;
  sim.job().spec.worker.resources["cpu"] = *api::parse_quantity("8");
  auto nodes = std::make_shared<std::vector<Node>>();
  nodes->push_back(node("a", "4", "64Gi"));
  sim.observed.nodes = nodes;
  const Plan first = sim.step();
  EXPECT_EQ(first.creations.size(), 2U) << "an autoscaler adds nodes for pending pods";
  const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "LargerThanAnyNode");
  nodes->push_back(node("b", "8", "64Gi"));
  sim.settle();
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
  sim.start();
  // A running job needs no node.
  nodes->clear();
  nodes->push_back(node("a", "4", "64Gi"));
  EXPECT_FALSE(sim.step().status);
}

TEST(NodeConstraint, IsEmptyBeforeTheInstructionSetIsKnownAndForAnInexactJob) {
  api::TrainJob job = testing::make_job();
  api::TrainJobStatus status;
  status.excluded_nodes = {"a"};
  EXPECT_EQ(node_constraint_of(job, status, nullptr), NodeConstraint{});
  status.instruction_set = "amx";
  EXPECT_EQ(node_constraint_of(job, status, nullptr).excluded_nodes, std::vector<std::string>{"a"});
  job.spec.trainer.flags["exact"] = "false";
  EXPECT_EQ(node_constraint_of(job, status, nullptr), NodeConstraint{});
}

TEST(NodeConstraint, RequiresTheLabelOfNodeFeatureDiscoveryIfANodeHasIt) {
  const api::TrainJob job = job_requesting("4", "8Gi");
  api::TrainJobStatus status;
  status.instruction_set = "avx512_bf16";
  const std::string label = "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16";
  std::vector<Node> nodes = {node("a", "4", "8Gi"), node("b", "4", "8Gi")};
  EXPECT_EQ(node_constraint_of(job, status, &nodes).required_label, "");
  EXPECT_TRUE(has_other_node(job, node_constraint_of(job, status, &nodes), "a", nodes));
  nodes[0].labels[label] = "true";
  const NodeConstraint constraint = node_constraint_of(job, status, &nodes);
  EXPECT_EQ(constraint.required_label, label);
  EXPECT_FALSE(has_other_node(job, constraint, "a", nodes)) << "b has no label";
  EXPECT_TRUE(has_other_node(job, constraint, "b", nodes));
}

TEST(NodeConstraint, FindsNoOtherNodeAmongCordonedSmallOrExcludedOnes) {
  api::TrainJob job = job_requesting("4", "8Gi");
  const NodeConstraint constraint{{"excluded"}, ""};
  Node cordoned = node("cordoned", "4", "8Gi");
  cordoned.cordoned = true;
  std::vector<Node> nodes = {node("here", "4", "8Gi"), node("excluded", "4", "8Gi"), cordoned,
                             node("small", "2", "8Gi")};
  EXPECT_FALSE(has_other_node(job, constraint, "here", nodes));
  nodes.push_back(node("free", "4", "8Gi"));
  EXPECT_TRUE(has_other_node(job, constraint, "here", nodes));
  job.spec.worker.node_selector = {{"pool", "amx"}};
  EXPECT_FALSE(has_other_node(job, constraint, "here", nodes));
}

}  // namespace
}  // namespace tilewright::policy
