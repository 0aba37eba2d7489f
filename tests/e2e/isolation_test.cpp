// What keeps a job's workers to themselves: CPUs that no other pod runs on, and ports that only its
// own pods reach.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <iostream>
#include <regex>

#include "common/contract/ports.h"
#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::Not;
using testing::restricted_pod;

class Isolation : public testing::TrainingJobTest {
 protected:
  Isolation() : TrainingJobTest(testing::Model::kSmall) {
    // For as long as it is looked at.
    spec_["trainer"].update({{"max_steps", 1'000'000}, {"save_steps", 20}, {"logging_steps", 5}});
  }

  // What a shell in a pod of that name prints.
  std::string in_pod(const std::string& name, const std::string& script) const {
    create(restricted_pod(name, testing::tools_image(), {"sh", "-c", script}));
    wait("pod/" + name, "{.status.phase}", "Succeeded");
    return must({"logs", name});
  }
  // Whether a pod of that name, which is none of the job's, is let in there.
  bool reaches(const std::string& name, const std::string& address, int port) const {
    return in_pod(name, fmt::format("nc -w 5 {} {} -e true && echo yes || echo no", address,
                                    port)) == "yes\n";
  }
  // Not every network heeds NetworkPolicies: one that shuts a pod off from all others tells.
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

TEST_F(Isolation, AWorkerOfWholeCpusHasThemToItself) {
  if (!is_own_cluster()) GTEST_SKIP() << "of `make cluster`'s kubelet it is known to pin CPUs";
  spec_["worker"]["resources"]["cpu"] = 1;
  create(manifest_);
  await_line("mrpc-worker-0", "checkpoint-");
  EXPECT_EQ(get("pod/mrpc-worker-0")["status"]["qosClass"], "Guaranteed");
  // One CPU by its number, no range.
  const std::string doctor = must({"exec", "mrpc-worker-0", "--", "tilewright-worker", "doctor"});
  std::smatch own;
  ASSERT_TRUE(std::regex_search(doctor, own, std::regex("allowed CPUs +([0-9]+)\n"))) << doctor;
  EXPECT_THAT(doctor, ContainsRegex("threads a process +1\n"));
  const std::string others = in_pod("other", "grep Cpus_allowed_list /proc/self/status");
  EXPECT_THAT(others, Not(ContainsRegex("[^0-9]" + own.str(1) + "[^0-9]")));
}

// Of a network that enforces policies the training itself shows that a job's own pods are let in.
// Elsewhere everybody is, and it shows that workers listen where the policy says.
TEST_F(Isolation, AWorkersTransportIsForItsOwnPodsWherePoliciesAreEnforced) {
  const bool enforced = enforces_policies();
  std::cout << "NetworkPolicies are " << (enforced ? "" : "not ") << "enforced here\n";
  spec_["worker"]["replicas"] = 2;
  create(manifest_);
  await_line("mrpc-worker-0", "checkpoint-");
  const std::string worker = get("pod/mrpc-worker-0")["status"]["podIP"];
  EXPECT_EQ(reaches("stranger", worker, kTransportPort), !enforced);
  EXPECT_TRUE(reaches("scraper", worker, kWorkerMetricsPort));
}

}  // namespace
}  // namespace tilewright
