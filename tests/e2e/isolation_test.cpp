// Tests the isolation of a job's workers: exclusive CPUs, and ports that only the job's pods can
// reach.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include "common/contract/ports.h"
#include "common/host/cpu_list.h"
#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::restricted_pod;

class Isolation : public testing::TrainingJobTest {
 protected:
  Isolation() : TrainingJobTest(testing::Model::kSmall) {
    // Enough steps that the job runs during the whole test.
    spec_["trainer"].update({{"max_steps", 1'000'000}, {"save_steps", 20}, {"logging_steps", 5}});
  }

  // Runs a script in a pod of that name and returns its output.
  std::string run_in_pod(const std::string& name, const std::string& script) const {
    create(restricted_pod(name, testing::tools_image(), {"sh", "-c", script}));
    wait("pod/" + name, "{.status.phase}", "Succeeded");
    return kubectl_ok({"logs", name});
  }
  // Whether a pod of that name, outside the job, can connect to the port. It tries three times,
  // because a stalled machine looks like a policy that drops packets.
  bool reaches(const std::string& name, const std::string& address, int port) const {
    const std::string script = fmt::format(
        "for try in 1 2 3; do nc -w 10 {} {} -e true && echo yes && exit; done; echo no", address,
        port);
    return run_in_pod(name, script) == "yes\n";
  }
  // Some CNI plugins ignore NetworkPolicies. A policy that denies all ingress to a pod shows it.
  bool enforces_policies() const {
    create(
        {{"apiVersion", "networking.k8s.io/v1"},
         {"kind", "NetworkPolicy"},
         {"metadata", {{"name", "shut"}}},
         {"spec",
          {{"podSelector", {{"matchLabels", {{"e2e", "shut"}}}}}, {"policyTypes", {"Ingress"}}}}});
    json server = restricted_pod("shut", testing::tools_image(), {"httpd", "-f", "-p", "8080"});
    server["spec"]["containers"][0]["readinessProbe"] = {{"tcpSocket", {{"port", 8080}}},
                                                         {"periodSeconds", 1}};
    create(server);
    wait("pod/shut", R"({.status.conditions[?(@.type=="Ready")].status})", "True");
    return !reaches("visitor", get("pod/shut")["status"]["podIP"], 8080);
  }

  json manifest_ = testing::training_job(testing::Model::kSmall);
  json& spec_ = manifest_["spec"];
};

TEST_F(Isolation, AWorkerWithIntegerCpusHasExclusiveCpus) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the kubelet of `make cluster` is known to pin CPUs";
  spec_["worker"]["resources"]["cpu"] = 1;
  create(manifest_);
  wait_for_log_line("mrpc-worker-0", "checkpoint-");
  EXPECT_EQ(get("pod/mrpc-worker-0")["status"]["qosClass"], "Guaranteed");
  // A single CPU, not a range.
  const std::string doctor =
      kubectl_ok({"exec", "mrpc-worker-0", "--", "tilewright-worker", "doctor"});
  std::smatch own;
  ASSERT_TRUE(std::regex_search(doctor, own, std::regex("allowed CPUs +([0-9]+)\n"))) << doctor;
  EXPECT_THAT(doctor, ContainsRegex("threads per process +1\n"));
  std::string others =
      run_in_pod("other", "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status");
  ASSERT_FALSE(others.empty());
  others.pop_back();  // the end of the line
  const std::vector<int> cpus = host::parse_cpu_list(others);
  ASSERT_THAT(cpus, Not(IsEmpty())) << others;
  EXPECT_THAT(cpus, Not(Contains(std::stoi(own.str(1))))) << others;
}

// If policies are enforced, the training shows that the job's own pods can connect. Otherwise every
// pod can, and the test shows that workers listen on the port of the policy.
TEST_F(Isolation, OnlyTheJobsPodsReachItsTransportPort) {
  const bool enforced = enforces_policies();
  std::cout << "NetworkPolicies are " << (enforced ? "" : "not ") << "enforced here\n";
  spec_["worker"]["replicas"] = 2;
  create(manifest_);
  wait_for_log_line("mrpc-worker-0", "checkpoint-");
  const std::string worker = get("pod/mrpc-worker-0")["status"]["podIP"];
  EXPECT_EQ(reaches("stranger", worker, kTransportPort), !enforced);
  EXPECT_TRUE(reaches("scraper", worker, kWorkerMetricsPort));
}

}  // namespace
}  // namespace tilewright
