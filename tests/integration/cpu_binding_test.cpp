// The CPUs on which workers run, as the kernel reports them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/contract/environment.h"
#include "common/host/binding.h"
#include "common/process/child_process.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

std::vector<int> affinity_of(pid_t pid) {
  host::BitMask mask;
  if (syscall(SYS_sched_getaffinity, pid, mask.bytes(), mask.data()) < 0) return {};
  return mask.numbers();
}

// A worker that waits for its input has its CPUs, but has not read the model.
TEST(CpuBinding, EachWorkerOfAHostBindsItselfToItsPartOfThePlan) {
  const host::CpuPlan plan = host::plan_cpus(host::this_host(), 2);
  for (int local_rank = 0; local_rank < 2; ++local_rank) {
    ChildCommand command;
    command.program = testing::program("tilewright-worker");
    command.arguments = {"predict", "--input=-", "--task_name=mrpc",
                         "--model_name_or_path=/nonexistent"};
    command.environment = environment_with_overrides(
        {{env::kLocalWorldSize, "2"}, {env::kLocalRank, fmt::format("{}", local_rank)}});
    command.input_pipe = true;
    ChildProcess worker = ChildProcess::start(command).or_throw();
    // The kernel has no event for a change of the mask.
    const MonotonicTime deadline = monotonic_now() + std::chrono::seconds(30);
    pollfd exit{worker.exit_fd(), POLLIN, 0};
    while (affinity_of(worker.pid()) != plan.of(local_rank).cpus && monotonic_now() < deadline)
      ASSERT_EQ(poll(&exit, 1, 10), 0) << worker.read_output();
    EXPECT_EQ(affinity_of(worker.pid()), plan.of(local_rank).cpus);
    worker.close_input();
    ASSERT_EQ(poll(&exit, 1, 30000), 1);
    EXPECT_EQ(worker.poll_exit(), static_cast<int>(ExitCode::kModel)) << worker.read_output();
  }
}

}  // namespace
}  // namespace tilewright
