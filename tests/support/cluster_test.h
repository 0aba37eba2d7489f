// Fixture of tests that need a Kubernetes API server, one per test program.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/control_plane.h"

namespace tilewright::testing {

// Without the programs, a test fails in CI (CI=true) and is skipped elsewhere, with a message that
// says what to do. A failed test keeps the control plane's folder and prints its path.
class ClusterTest : public ::testing::Test {
 protected:
  // `more`: additional programs of .ci/control-plane that the test needs.
  explicit ClusterTest(std::vector<std::string> more = {}) : more_programs_(std::move(more)) {}
  void SetUp() override;
  void TearDown() override;
  // Started on first use and stopped when the program ends. Throws if it did not start.
  static ControlPlane& control_plane();
  // Installs a CRD without schema for a kind that the API server does not have.
  static void install_permissive_crd(const std::string& group, const std::string& version,
                                     const std::string& plural, const std::string& kind);

 private:
  struct Shared;
  static Shared& shared();
  const std::vector<std::string> more_programs_;
};

}  // namespace tilewright::testing
