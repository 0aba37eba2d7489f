// Fixture of the e2e tests: uses the cluster of KUBECONFIG, which has nodes that run pods, through
// kubectl.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright::testing {

// Images under the names that the cluster's nodes use.
std::string worker_image();
// An image with a shell: busybox.
std::string tools_image();

// Without a cluster, a test fails in CI (CI=true) and is skipped elsewhere, with a message that
// says what to do. Each test has its own namespace with the restricted Pod Security Standard; a
// failed test keeps it and prints its state.
class KubernetesTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  const std::string& namespace_name() const { return namespace_; }
  const std::filesystem::path& kubectl_program() const { return kubectl_; }
  // Runs kubectl in the test's namespace. The command may fail.
  CommandResult kubectl(std::vector<std::string> arguments) const;
  // Fails the test if the command fails; returns its output.
  std::string kubectl_ok(const std::vector<std::string>& arguments) const;
  nlohmann::json create(const nlohmann::json& object) const;
  nlohmann::json get(const std::string& resource) const;
  // Waits until the jsonpath `path` has `value`, with a watch. Returns the time that this took.
  std::chrono::duration<double> wait(const std::string& resource, const std::string& path,
                                     const std::string& value) const;

  // Waits until the pod logs a line that contains the text.
  void wait_for_log_line(const std::string& pod, const std::string& text) const;

 private:
  std::string describe_namespace() const;

  std::filesystem::path kubectl_;
  TemporaryDirectory folder_;
  std::string namespace_;
};

// A pod with one container that conforms to restricted Pod Security, with the given image and
// command and a small Guaranteed share of the node.
nlohmann::json restricted_pod(const std::string& name, const std::string& image,
                              const std::vector<std::string>& command);

}  // namespace tilewright::testing
