// Real agents of PyTorch's torchrun in the pods of an elastic PyTorchJob: they use the operator's
// store. A node without a kubelet reports the pods, and this program starts for each pod the agent
// with the variables of its container (needs root). TILEWRIGHT_PEER_PYTHON is a Python that has
// torch.
#include <fstream>

#include "common/net/wait.h"
#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

constexpr int kSteps = 40;

// Rendezvous at the operator. A pod's address is that of this machine, where the agents
// serve no store (is_host) and the gloo of the workers listens.
constexpr const char* kJob = R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: qa}
spec:
  elasticPolicy:
    {rdzvBackend: c10d, rdzvId: run, minReplicas: 1, maxReplicas: 2, maxRestarts: 10,
     rdzvConf: [{key: is_host, value: "0"}, {key: last_call_timeout, value: "3"}]}
  nprocPerNode: "1"
  runPolicy: {backoffLimit: 1}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: pytorch, image: trainer, command: [torchrun, run.py]}]}}
)";

class TorchrunPeerTest : public ControllerTest {
 protected:
  void SetUp() override {
    ASSERT_NE(getenv("TILEWRIGHT_PEER_PYTHON"), nullptr) << "run this with `make peers-torchrun`";
    ControllerTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    const std::string crd = "pytorchjobs.kubeflow.org";
    const HttpResponse made =
        admin().post(kCrdsPath, parse_yaml(read_text(source_dir() / "crds" / (crd + ".yaml"))));
    ASSERT_TRUE(made.status == 201 || made.status == 409) << made.message();
    ASSERT_TRUE(eventually([&] { return admin().get(pytorch_path()).ok(); }));
    pytorch_jobs_ =
        std::make_unique<ObjectWatch>(*client_, controller::resource::pytorch_jobs(), namespace_);
  }
  void TearDown() override {
    agents_.clear();
    pytorch_jobs_.reset();
    if (client_ && !namespace_.empty()) admin().remove(pytorch_path());
    ControllerTest::TearDown();
  }

  std::string pytorch_path() const {
    return fmt::format("/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs", namespace_);
  }
  void start_operator() {
    start_controller("", {"--enable_pytorchjobs", "--leader_elect=false",
                          "--tcpstore_listen=127.0.0.1:0", "--tcpstore_address=127.0.0.1:0"});
  }
  // Does what a kubelet does until `holds`; false on timeout.
  bool eventually(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(4);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      run_pods();
      net::sleep_until(net::within(std::chrono::milliseconds(50)));
    }
    return true;
  }
  void run_pods() {
    if (!node_) return;
    for (const auto& [name, uid] : live_pods()) {
      if (!agents_.contains(uid)) start_agent(name, uid);
      RunningProgram& agent = *agents_.at(uid);
      if (!agent.has_exited() || ended_.contains(uid)) continue;
      ended_.insert(uid);
      node_->end_container(name, agent.wait());
      if (std::getenv("TORCHRUN_LINES")) std::cout << name << ":\n" << agent.output();
    }
  }
  void start_agent(const std::string& name, const std::string& uid) {
    const json pod = node_->pods().objects()[name];
    // In a PID namespace, so that its workers die with it.
    std::vector<std::string> words = {"--pid",
                                      "--fork",
                                      "--kill-child",
                                      "--mount-proc",
                                      "/usr/bin/env",
                                      "GLOO_SOCKET_IFNAME=lo",
                                      "OMP_NUM_THREADS=1"};
    for (const json& each : pod["spec"]["containers"][0]["env"]) {
      words.push_back(each["name"].get<std::string>() + "=" + each.value("value", ""));
    }
    for (const std::string& word :
         {std::string(getenv("TILEWRIGHT_PEER_PYTHON")), std::string("-m"),
          std::string("torch.distributed.run"), std::string("--monitor-interval=0.1"),
          fmt::format("--local-addr=127.0.0.{}", 11 + agents_.size()),
          (source_dir() / "tests/peers/allreduce.py").string(), temporary_.path().string(),
          std::to_string(kSteps), std::string("0.25")}) {
      words.push_back(word);
    }
    agents_[uid] = std::make_unique<RunningProgram>("/usr/bin/unshare", words, temporary_.path());
    node_->set_address(name, "127.0.0.1");
  }
  // [step, sum] of the training; step 0 before the first.
  json checkpoint() {
    std::ifstream file(temporary_.path() / "checkpoint.json");
    return file ? json::parse(file) : json{0, 0};
  }
  bool reaches(int step) {
    return eventually([&] { return checkpoint()[0] >= step; });
  }
  json status() { return pytorch_jobs_->objects()["qa"]["status"]; }
  void expect_success() {
    ASSERT_TRUE(eventually([&] {
      const json conditions = status().value("conditions", json::array());
      return !conditions.empty() && conditions.back()["type"] == "Succeeded";
    })) << status().dump(1);
    int total = 0;
    for (int i = 0; i < kSteps * 8; ++i) total += i;
    EXPECT_EQ(checkpoint(), (json{kSteps, total}));
  }

  std::unique_ptr<ObjectWatch> pytorch_jobs_;
  std::map<std::string, std::unique_ptr<RunningProgram>> agents_;  // by UID of the pod
  std::set<std::string> ended_;
};

// Under Kubeflow's operator worker 0 holds the store, and the job dies with it.
TEST_F(TorchrunPeerTest, SurvivesTheLossOfWorker0) {
  start_operator();
  ASSERT_EQ(admin().post(pytorch_path(), parse_yaml(kJob)).status, 201);
  ASSERT_TRUE(reaches(8));
  const std::string first = live_pods().at("qa-worker-0");
  agents_.at(first)->send(SIGKILL);
  ASSERT_TRUE(eventually([&] { return ended_.contains(first); }));
  expect_success();
  EXPECT_EQ(status()["tilewright"]["restarts"]["program"], 1);
}

TEST_F(TorchrunPeerTest, SurvivesAChangeOfTheOperatorsLeader) {
  start_operator();
  ASSERT_EQ(admin().post(pytorch_path(), parse_yaml(kJob)).status, 201);
  ASSERT_TRUE(reaches(8));
  const auto before = live_pods();
  kill_and_read_output(*controllers_.front());
  controllers_.clear();
  ASSERT_TRUE(eventually([&] { return ended_.size() == before.size(); }));
  start_operator();
  expect_success();
  EXPECT_EQ(status()["tilewright"]["restarts"]["program"], 0) << "the agents are not to blame";
  EXPECT_EQ(status()["tilewright"]["restarts"]["infrastructure"], 2);
}

}  // namespace
}  // namespace tilewright::testing
