#include "worker/train/faults.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/clock.h"
#include "tests/support/paths.h"

namespace tilewright::train {
namespace {

Faults faults_at(const char* text, std::int64_t worker, std::uint64_t epoch, std::int64_t step) {
  Faults faults = Faults::parse(text).value();
  faults.enter(worker, epoch);
  faults.at_step(step);
  return faults;
}

TEST(Faults, KillTheProcessAtTheNamedPoint) {
  const Faults faults = faults_at("step.after_update@3,worker=1", 1, 1, 3);
  faults.hit("step.begin");
  EXPECT_EXIT(faults.hit("step.after_update"), ::testing::KilledBySignal(SIGKILL), "");
}

TEST(Faults, IgnoreOtherStepsWorkersAndEpochs) {
  faults_at("step.after_update@3,worker=1", 1, 1, 2).hit("step.after_update");
  faults_at("step.after_update@3,worker=1", 0, 1, 3).hit("step.after_update");
  faults_at("step.after_update@3,worker=1", 1, 2, 3).hit("step.after_update");
  faults_at("", 1, 1, 3).hit("step.after_update");
}

TEST(Faults, CanBeSeveral) {
  constexpr const char* kTwo = "step.begin@3,worker=0;state.transfer,worker=1,epoch=2";
  faults_at(kTwo, 1, 1, 3).hit("step.begin");
  EXPECT_EXIT(faults_at(kTwo, 0, 1, 3).hit("step.begin"), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(faults_at(kTwo, 1, 2, 0).hit("state.transfer"), ::testing::KilledBySignal(SIGKILL),
              "");
  EXPECT_FALSE(Faults::parse("step.begin;;step.begin").ok());
}

TEST(Faults, DelayTheProcessInARangeOfSteps) {
  constexpr const char* kDelay = "step.shard@3-5,worker=1,delay=20";
  const auto duration = [](const Faults& faults) {
    const MonotonicTime begin = monotonic_now();
    faults.hit("step.shard");
    return monotonic_now() - begin;
  };
  for (const std::int64_t step : {3, 5}) {
    EXPECT_GE(duration(faults_at(kDelay, 1, 1, step)), std::chrono::milliseconds(20));
  }
  // A delay that does not match would make the test fail by its time limit.
  constexpr const char* kLong = "step.shard@3-5,worker=1,delay=100000000";
  for (const std::int64_t step : {2, 6}) duration(faults_at(kLong, 1, 1, step));
  duration(faults_at(kLong, 0, 1, 4));
  EXPECT_FALSE(Faults::parse("step.shard@3-x").ok());
  EXPECT_FALSE(Faults::parse("step.shard,delay=x").ok());
}

TEST(Faults, HoldTheProcessAtANamedPipe) {
  const testing::TemporaryDirectory directory;
  const std::string pipe = directory.path() / "pipe";
  const std::string text = "step.begin,hold=" + pipe;
  const Faults faults = faults_at(text.c_str(), 1, 1, 3);
  faults.hit("step.begin");  // there is no pipe
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::atomic<bool> opened = false;
  std::thread other([&] {
    const std::ofstream writer(pipe);
    opened = true;
  });
  faults.hit("step.begin");
  EXPECT_TRUE(opened);
  other.join();
}

TEST(Faults, HappenOnceIfTheFileExists) {
  const testing::TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "armed";
  const std::string fault = "step.begin,worker=1,once=" + file.string();
  faults_at(fault.c_str(), 1, 1, 3).hit("step.begin");
  std::ofstream(file) << "";
  faults_at(fault.c_str(), 0, 1, 3).hit("step.begin");
  EXPECT_TRUE(std::filesystem::exists(file));
  faults_at((fault + ",epoch=1").c_str(), 1, 7, 3).hit("step.begin");
  EXPECT_EXIT(faults_at(fault.c_str(), 1, 7, 3).hit("step.begin"),
              ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(std::filesystem::exists(file));
  faults_at(fault.c_str(), 1, 7, 3).hit("step.begin");
  EXPECT_FALSE(Faults::parse("step.begin,once=").ok());
}

TEST(Faults, RefuseAPointThatDoesNotExist) {
  const auto unknown = Faults::parse("step.middle");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ExitCode::kUsage);
  EXPECT_NE(unknown.error().message.find("unknown point \"step.middle\" (known: step.begin"),
            std::string::npos);
  EXPECT_FALSE(Faults::parse("step.begin@x").ok());
  EXPECT_FALSE(Faults::parse("step.begin,rank=1").ok());
}

}  // namespace
}  // namespace tilewright::train
