#include "controller/reconcile/placement.h"

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using testing::World;

Node node(const std::string& name, const std::string& cpu, const std::string& memory,
          std::map<std::string, std::string> labels = {}) {
  return {name,
          false,
          std::move(labels),
          {{"cpu", *api::parse_quantity(cpu)}, {"memory", *api::parse_quantity(memory)}}};
}

api::TrainJob job_that_asks(const std::string& cpu, const std::string& memory) {
  api::TrainJob job = testing::make_job();
  job.spec.worker.resources = {{"cpu", *api::parse_quantity(cpu)},
                               {"memory", *api::parse_quantity(memory)}};
  return job;
}

TEST(Placement, IsSilentWhereSomeNodeIsLargeEnough) {
  const api::TrainJob job = job_that_asks("4", "8Gi");
  EXPECT_FALSE(find_no_node(job, {node("a", "2", "16Gi"), node("b", "4", "8192Mi")}));
  EXPECT_FALSE(find_no_node(job, {})) << "an autoscaler may have taken all away";
}

TEST(Placement, SaysWhatIsTooLargeAndHowLargeTheNodesAre) {
  const auto obstacle =
      find_no_node(job_that_asks("8", "8Gi"), {node("a", "4", "64Gi"), node("b", "7500m", "32Gi")});
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(obstacle->reason, "LargerThanAnyNode");
  EXPECT_EQ(obstacle->message,
            "a worker asks for cpu 8, memory 8Gi; a node of those that could take one (2 of 2) has "
            "at most cpu 7500m, memory 64Gi; lower spec.worker.resources, or add a node that is "
            "large enough");
}

TEST(Placement, WantsBothOnOneNode) {
  EXPECT_TRUE(
      find_no_node(job_that_asks("8", "32Gi"), {node("a", "4", "64Gi"), node("b", "16", "16Gi")}));
}

TEST(Placement, MissesAResourceThatNoNodeHas) {
  api::TrainJob job = job_that_asks("1", "1Gi");
  job.spec.worker.resources["example.com/device"] = *api::parse_quantity("1");
  const auto obstacle = find_no_node(job, {node("a", "4", "64Gi")});
  ASSERT_TRUE(obstacle);
  EXPECT_NE(obstacle->message.find("example.com/device 0"), std::string::npos) << obstacle->message;
}

TEST(Placement, HeedsTheNodeSelectorAndCordons) {
  api::TrainJob job = job_that_asks("4", "8Gi");
  job.spec.worker.node_selector = {{"amx", "true"}};
  std::vector<Node> nodes = {node("a", "64", "64Gi"), node("b", "64", "64Gi", {{"amx", "false"}})};
  auto obstacle = find_no_node(job, nodes);
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(obstacle->reason, "NoSuchNode");
  EXPECT_EQ(
      obstacle->message,
      "none of 2 nodes has the labels that spec.worker.nodeSelector wants (amx=true); workers "
      "start as soon as one has");
  nodes.push_back(node("c", "64", "64Gi", {{"amx", "true"}}));
  EXPECT_FALSE(find_no_node(job, nodes));
  nodes.back().cordoned = true;
  obstacle = find_no_node(job, nodes);
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(obstacle->reason, "NodesCordoned");
}

TEST(Placement, IsSaidAtTheFirstLookAndTakenBackWhenANodeComes) {
  World world;
  world.job().spec.worker.resources["cpu"] = *api::parse_quantity("8");
  auto nodes = std::make_shared<std::vector<Node>>();
  nodes->push_back(node("a", "4", "64Gi"));
  world.observed.nodes = nodes;
  const Plan first = world.step();
  EXPECT_EQ(first.creations.size(), 2U) << "an autoscaler makes nodes for pods that wait";
  const api::Condition* blocked = world.status().find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "LargerThanAnyNode");
  nodes->push_back(node("b", "8", "64Gi"));
  world.settle();
  EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "False");
  world.start();
  // A job that runs asks for no node.
  nodes->clear();
  nodes->push_back(node("a", "4", "64Gi"));
  EXPECT_FALSE(world.step().status);
}

}  // namespace
}  // namespace tilewright::reconcile
