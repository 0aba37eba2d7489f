#include "tests/support/cluster_test.h"

#include <iostream>
#include <stdexcept>

#include "tests/support/paths.h"

namespace tilewright::testing {

// If the control plane does not start, later tests do not retry.
struct ClusterTest::Shared {
  std::unique_ptr<ControlPlane> plane;
  std::string failure;
};

ClusterTest::Shared& ClusterTest::shared() {
  static Shared shared;
  return shared;
}

ControlPlane& ClusterTest::control_plane() {
  Shared& it = shared();
  if (it.plane == nullptr && it.failure.empty()) {
    try {
      it.plane = std::make_unique<ControlPlane>();
    } catch (const std::exception& error) {
      it.failure = error.what();
    }
  }
  if (it.plane == nullptr) throw std::runtime_error(it.failure);
  return *it.plane;
}

void ClusterTest::SetUp() {
  std::string reason = ControlPlane::missing();
  if (reason.empty()) reason = ControlPlane::missing(more_programs_);
  if (reason.empty()) return;
  if (prerequisites_required()) FAIL() << reason;
  GTEST_SKIP() << reason;
}

void ClusterTest::TearDown() {
  if (!HasFailure() || shared().plane == nullptr) return;
  shared().plane->keep_folder();
  std::cout << "the control plane's logs: " << shared().plane->folder().string() << "/*.log\n";
}

}  // namespace tilewright::testing
