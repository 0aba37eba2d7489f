// The fixture of tests that need a Kubernetes API server: one for a whole test program.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/control_plane.h"

namespace tilewright::testing {

// Without the programs such a test fails in CI (CI=true) and is skipped elsewhere, with what to do.
// A test that fails leaves the control plane's folder behind and names it.
class ClusterTest : public ::testing::Test {
 protected:
  // `more`: programs of .ci/control-plane that it needs beside a control plane's.
  explicit ClusterTest(std::vector<std::string> more = {}) : more_programs_(std::move(more)) {}
  void SetUp() override;
  void TearDown() override;
  // Started by the first test that asks, stopped when the program ends. Throws if it did not start.
  static ControlPlane& control_plane();

 private:
  struct Shared;
  static Shared& shared();
  const std::vector<std::string> more_programs_;
};

}  // namespace tilewright::testing
