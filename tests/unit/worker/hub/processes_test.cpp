// Processes that share a cache.
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "common/base/strings.h"
#include "tests/support/hidden_system_call.h"
#include "tests/support/running_program.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/worker/hub/hub_fixture.h"
#include "worker/hub/download_lock.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_text;
using testing::RunningProgram;
using testing::ScopedVariable;

// Resolves what HUB_TEST_MODEL and HUB_TEST_DATASET (NAME or NAME:CONFIG) name, with the settings
// of the environment; with HUB_TEST_NO_LINKS as on a file system without symbolic links. Other
// tests run it as a process of its own; by hand it shows what a cache holds.
TEST(Process, DISABLED_Resolves) {
  if (!environment_variable("HUB_TEST_NO_LINKS").empty()) {
    ASSERT_TRUE(testing::hide_system_call(SYS_symlinkat));
#ifdef SYS_symlink
    ASSERT_TRUE(testing::hide_system_call(SYS_symlink));
#endif
  }
  HubOptions options =
      options_from_environment([](const char* name) { return environment_variable(name); });
  options.progress = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  if (const std::string model = environment_variable("HUB_TEST_MODEL"); !model.empty()) {
    std::printf("model: %s\n", resolve_model({.name_or_path = model}, options).c_str());
  }
  if (const std::string name = environment_variable("HUB_TEST_DATASET"); !name.empty()) {
    const std::size_t colon = std::min(name.find(':'), name.size());
    const std::string config = colon == name.size() ? "" : name.substr(colon + 1);
    const DatasetFiles files =
        resolve_dataset({.name = name.substr(0, colon), .config = config}, options);
    for (const auto& [split, paths] : files.splits) {
      for (const fs::path& path : paths) std::printf("%s: %s\n", split.c_str(), path.c_str());
    }
  }
}

class Processes : public HubTest {
 protected:
  std::unique_ptr<RunningProgram> start() const {
    return std::make_unique<RunningProgram>(
        fs::read_symlink("/proc/self/exe"),
        std::vector<std::string>{"--gtest_filter=Process.DISABLED_Resolves",
                                 "--gtest_also_run_disabled_tests"},
        folder_.path());
  }
  // The second process waits for the first.
  void expect_one_download() {
    add_model();
    server_.add_fault({.kind = Fault::kHold, .method = "GET", .target = "/blob/"});
    const auto first = start();
    ASSERT_TRUE(server_.await("GET", "/blob/", 1));
    const auto second = start();
    ASSERT_TRUE(second->wait_for_output("waiting for another process"));
    server_.release();
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    EXPECT_EQ(server_.count("GET", "/blob/"), 1);
    options_.offline = options_.datasets_offline = true;
    EXPECT_EQ(read_text(resolve() / "model.safetensors"), weights_);
  }
  const ScopedVariable endpoint_{"HF_ENDPOINT", server_.endpoint()};
  const ScopedVariable cache_{"HF_HUB_CACHE", options_.cache_dir.string()};
  const ScopedVariable model_{"HUB_TEST_MODEL", "google-bert/bert-base-uncased"};
  const ScopedVariable online_{"HF_HUB_OFFLINE", ""};
  const ScopedVariable also_online_{"TRANSFORMERS_OFFLINE", ""};
};

TEST_F(Processes, AtOnceDownloadAFileOnce) {
  expect_one_download();
  EXPECT_TRUE(fs::is_symlink(resolve() / "model.safetensors"));
}

TEST_F(Processes, AtOnceDownloadAFileOnceWithoutSymbolicLinks) {
  const ScopedVariable no_links("HUB_TEST_NO_LINKS", "1");
  expect_one_download();
  EXPECT_FALSE(fs::is_symlink(resolve() / "model.safetensors"));
}

TEST_F(Processes, ThatAreKilledLeaveALockThatTheNextTakes) {
  add_model();
  server_.add_fault({.kind = Fault::kSilence, .method = "GET", .target = "/blob/"});
  const auto first = start();
  ASSERT_TRUE(server_.await("GET", "/blob/", 1));
  const auto second = start();
  ASSERT_TRUE(second->wait_for_output("waiting for another process"));
  first->send(SIGKILL);
  EXPECT_EQ(first->wait(), 128 + SIGKILL);
  EXPECT_EQ(second->wait(), 0) << second->output();
  options_.offline = options_.datasets_offline = true;
  EXPECT_EQ(read_text(resolve() / "model.safetensors"), weights_);
}

class Lock : public HubTest {
 protected:
  Lock() { fs::create_directories(folder_.path()); }
  const fs::path path_ = folder_.path() / "etag.lock";
};

TEST_F(Lock, HasADeadline) {
  const FileLock held = lock_download(path_, options_, [] { return 0; });
  EXPECT_EQ(held.state(), FileLock::State::kLocked);
  options_.limits.lock = std::chrono::milliseconds(1);
  const Error error = failure_of([&] { lock_download(path_, options_, [] { return 0; }); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_THAT(error.message,
              HasSubstr("another process holds the lock and has downloaded nothing"));
}

TEST_F(Lock, IsWaitedForWhileItsHolderWorks) {
  std::optional<FileLock> held(lock_download(path_, options_, [] { return 0; }));
  options_.limits.lock = std::chrono::milliseconds(1);
  std::uintmax_t size = 0;
  const FileLock next = lock_download(path_, options_, [&] {
    if (++size == 4) held.reset();  // the holder is done
    return size;
  });
  EXPECT_EQ(next.state(), FileLock::State::kLocked);
  EXPECT_GE(size, 4U);
}

TEST_F(Lock, WaitCanBeCancelled) {
  const FileLock held = lock_download(path_, options_, [] { return 0; });
  net::WakeUp cancel;
  cancel.signal();
  options_.cancel = &cancel;
  EXPECT_EQ(failure_of([&] { lock_download(path_, options_, [] { return 0; }); }).code,
            ExitCode::kTerminated);
}

}  // namespace
}  // namespace tilewright::hub
