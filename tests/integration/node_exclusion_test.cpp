// Workers of an exact job avoid the nodes that lack its instruction set: the operator's node
// affinity by matchFields, as Kubernetes' API server admits it and its scheduler reads it.
#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

// Two nodes with equal capacity, and Kubernetes' scheduler in place of the fake nodes' own binding.
class NodeExclusionTest : public ControllerTest {
 protected:
  NodeExclusionTest() : ControllerTest({"kube-scheduler"}) {}

  void SetUp() override {
    ControllerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    other_node_ = std::make_unique<FakeNode>(control_plane(), *client_, namespace_, other());
    node_->accept_pods(false);
    other_node_->accept_pods(false);
    for (const std::string& name : {first(), other()}) {
      // The taint of a new node, which a node lifecycle controller would remove.
      const json untainted = {{"spec", {{"taints", nullptr}}}};
      ASSERT_TRUE(admin().merge_patch("/api/v1/nodes/" + name, untainted).ok());
    }
    scheduler_.emplace(control_plane().start(
        "kube-scheduler", {"--kubeconfig=" + control_plane().kubeconfig().string(),
                           "--leader-elect=false", "--secure-port=0"}));
  }
  void TearDown() override {
    if (other_node_ != nullptr) {
      // Nodes of later tests must be the only ones.
      for (const std::string& name : {first(), other()}) admin().remove("/api/v1/nodes/" + name);
    }
    scheduler_.reset();
    other_node_.reset();
    ControllerTest::TearDown();
  }

  std::string first() const { return "node-" + namespace_; }
  std::string other() const { return "other-" + namespace_; }

  // Creates the job as it is after its workers on these nodes have been found to lack AVX2, then
  // starts the operator.
  void start_job_excluding(const std::vector<std::string>& nodes,
                           json job = parse_yaml(kControllerJob)) {
    // The scheduler waits for a claim that does not exist.
    job["spec"]["volumes"] = {{{"name", "work"}, {"emptyDir", json::object()}}};
    create_job(job.dump());
    const json status = {{"instructionSet", "avx2"}, {"excludedNodes", nodes}};
    const HttpResponse set =
        admin().merge_patch(jobs_path() + "/mrpc/status", {{"status", status}});
    ASSERT_TRUE(set.ok()) << set.message();
    start_controller("", kNoLeaderElection);
  }
  // The node of each worker once all are scheduled.
  std::vector<std::string> chosen_nodes(std::size_t workers = 2) {
    std::vector<std::string> nodes;
    EXPECT_TRUE(node_->pods().wait_until([&](const Objects& pods) {
      nodes.clear();
      for (const auto& [name, pod] : pods) {
        const std::string node = pod["spec"].value("nodeName", "");
        if (!node.empty()) nodes.push_back(node);
      }
      return nodes.size() == workers;
    })) << json(node_->pods().objects()).dump(1);
    return nodes;
  }

  std::unique_ptr<FakeNode> other_node_;
  std::optional<ChildProcess> scheduler_;
};

TEST_F(NodeExclusionTest, WorkersGoToTheNodeThatIsNotExcluded) {
  start_job_excluding({first()});
  EXPECT_EQ(chosen_nodes(), (std::vector<std::string>{other(), other()}));
}

// The scheduler has no other reason to choose between the nodes.
TEST_F(NodeExclusionTest, WorkersGoToTheFirstNodeIfTheOtherIsExcluded) {
  start_job_excluding({other()});
  EXPECT_EQ(chosen_nodes(), (std::vector<std::string>{first(), first()}));
}

TEST_F(NodeExclusionTest, NoWorkerIsScheduledIfAllNodesAreExcluded) {
  start_job_excluding({first(), other()});
  EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) {
    return pods.size() == 2 && std::ranges::all_of(pods, [](const auto& entry) {
             const json conditions =
                 entry.second.value(json::json_pointer("/status/conditions"), json::array());
             return std::ranges::any_of(conditions, [](const json& condition) {
               return condition["type"] == "PodScheduled" && condition["status"] == "False" &&
                      condition["message"].get<std::string>().find(
                          "didn't match Pod's node affinity/selector") != std::string::npos;
             });
           });
  })) << json(node_->pods().objects()).dump(1);
}

// A node must match one term of the affinity; the exclusion holds for each of them.
TEST_F(NodeExclusionTest, TheJobsOwnAffinityDoesNotLiftTheExclusion) {
  json job = parse_yaml(kControllerJob);
  const auto term = [](const char* key, const char* op) {
    return json{{"matchExpressions", {{{"key", key}, {"operator", op}}}}};
  };
  job["spec"]["worker"]["podTemplate"]["spec"]["affinity"]["nodeAffinity"]
     ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = {
         term("example.com/slow", "DoesNotExist"), term("example.com/fast", "DoesNotExist")};
  start_job_excluding({first()}, job);
  EXPECT_EQ(chosen_nodes(), (std::vector<std::string>{other(), other()}));
}

}  // namespace
}  // namespace tilewright::testing
