// A Kubernetes cluster with nodes that run pods, as KUBECONFIG names it, through kubectl: what the
// tests of the label e2e stand on.
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

// Images as the cluster's nodes know them.
std::string worker_image();
// One with a shell: busybox.
std::string tools_image();

// Without a cluster such a test fails in CI (CI=true) and is skipped elsewhere, with what to do.
// Each test has a namespace of its own, of the restricted Pod Security Standard; a test that fails
// leaves it behind and shows what happened in it.
class KubernetesTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  const std::string& name_space() const { return namespace_; }
  const std::filesystem::path& kubectl_program() const { return kubectl_; }
  // In the test's namespace. It may fail.
  CommandOutcome kubectl(std::vector<std::string> arguments) const;
  // The same, and a failure of the test if it does not succeed; what it printed.
  std::string must(const std::vector<std::string>& arguments) const;
  nlohmann::json create(const nlohmann::json& object) const;
  nlohmann::json get(const std::string& resource) const;
  // Until `path`, as jsonpath has it, is `value`: kubectl watches. Returns how long that took.
  std::chrono::duration<double> wait(const std::string& resource, const std::string& path,
                                     const std::string& value) const;

  // Until the pod has logged a line with that text; it goes on logging.
  void await_line(const std::string& pod, const std::string& text) const;

 private:
  std::string show() const;

  std::filesystem::path kubectl_;
  TemporaryDirectory folder_;
  std::string namespace_;
};

// A pod of one container that restricted Pod Security lets in, with the given image, command and a
// small Guaranteed share of the node.
nlohmann::json restricted_pod(const std::string& name, const std::string& image,
                              const std::vector<std::string>& command);

}  // namespace tilewright::testing
