// JobStore: the state directory of a job.
#include "controller/local/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>

#include "controller/api/defaults.h"
#include "tests/support/hidden_system_call.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class JobStoreTest : public ::testing::Test {
 protected:
  static api::TrainJob job(const std::string& name) {
    api::TrainJob made;
    (name.ends_with('-') ? made.metadata.generate_name : made.metadata.name) = name;
    made.spec.trainer.task = "mrpc";
    made.spec.worker.replicas = 2;
    api::apply_defaults(made);
    return made;
  }
  fs::path state() const { return folder_.path() / "state"; }
  void end(api::TrainJob& ended, api::Phase phase) const {
    const JobStore store = JobStore::open(state(), ended, false).or_throw();
    ended.status.phase = phase;
    ASSERT_TRUE(store.save(ended).ok());
  }
  testing::TemporaryDirectory folder_;
};

TEST_F(JobStoreTest, CreatesANewJob) {
  api::TrainJob made = job("mrpc");
  const JobStore store = JobStore::open(state(), made, false).or_throw();
  EXPECT_FALSE(store.resumed());
  EXPECT_THAT(made.metadata.uid,
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_EQ(made.metadata.generation, 1);
  EXPECT_TRUE(made.metadata.creation_timestamp);
  EXPECT_TRUE(fs::is_directory(store.log_folder()));
  EXPECT_EQ(fs::file_size(store.key_file()), 64U);
  EXPECT_EQ(fs::status(store.key_file()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(JobStoreTest, KeepsAWholeKeyAndReplacesAnyOther) {
  api::TrainJob made = job("mrpc");
  const fs::path key_file = JobStore::open(state(), made, false).or_throw().key_file();
  const std::string key = testing::read_text(key_file);
  ASSERT_TRUE(JobStore::open(state(), made, false).ok());
  EXPECT_EQ(testing::read_text(key_file), key);
  for (const std::string& left :
       {std::string(), key.substr(0, 20), key.substr(0, 63), key + "\n", std::string(64, '\0')}) {
    std::ofstream(key_file) << left;
    ASSERT_TRUE(JobStore::open(state(), made, false).ok());
    EXPECT_THAT(testing::read_text(key_file), MatchesRegex("[0-9a-f]{64}"));
    EXPECT_NE(testing::read_text(key_file), left);
  }
}

TEST_F(JobStoreTest, LeavesNoPartOfAKeyThatItCannotWriteCompletely) {
  api::TrainJob made = job("mrpc");
  std::signal(SIGXFSZ, SIG_IGN);  // the limit stands for a full disk
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto store = JobStore::open(state(), made, false);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ExitCode::kOutput);
  EXPECT_THAT(store.error().message, HasSubstr("mrpc/job-key"));
  for (const auto& entry : fs::recursive_directory_iterator(state())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("key")));
  }
}

TEST_F(JobStoreTest, GeneratesDistinctNames) {
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    api::TrainJob made = job("run-");
    ASSERT_TRUE(JobStore::open(state(), made, false).ok());
    EXPECT_THAT(made.metadata.name, MatchesRegex("run-[bcdfghjklmnpqrstvwxz2-9]{5}"));
    names.insert(made.metadata.name);
  }
  EXPECT_EQ(names.size(), 5U);
}

TEST_F(JobStoreTest, ResumesAnUnfinishedJob) {
  api::TrainJob first = job("mrpc");
  end(first, api::Phase::kSuspended);
  api::TrainJob second = job("mrpc");
  {
    const JobStore store = JobStore::open(state(), second, false).or_throw();
    EXPECT_TRUE(store.resumed());
    EXPECT_EQ(second.metadata.uid, first.metadata.uid);
    EXPECT_EQ(second.metadata.generation, 1) << "the same spec";
    EXPECT_EQ(second.status.phase, api::Phase::kSuspended);
  }
  api::TrainJob third = job("mrpc");
  third.spec.run_policy.active_deadline_seconds = 60;
  ASSERT_TRUE(JobStore::open(state(), third, false).ok());
  EXPECT_EQ(third.metadata.uid, first.metadata.uid);
  EXPECT_EQ(third.metadata.generation, 2) << "the spec changed";
}

TEST_F(JobStoreTest, RefusesAnotherTrainingOfAnUnfinishedJob) {
  const auto open = [&](const std::string& flag, const std::string& value, bool replace = false) {
    api::TrainJob changed = job("mrpc");
    if (!flag.empty()) changed.spec.trainer.flags[flag] = value;
    const auto opened = JobStore::open(state(), changed, replace);
    return opened ? std::string() : opened.error().message;
  };
  ASSERT_EQ(open("", ""), "");
  EXPECT_EQ(open("learning_rate", "3e-05"), "") << "nothing has been trained";
  ASSERT_EQ(open("learning_rate", "5e-05"), "") << "the default, which is also that of no value";
  api::TrainJob first = job("mrpc");
  first.status.rendezvous_epoch = 0;
  {
    const JobStore store = JobStore::open(state(), first, false).or_throw();
    first.status.rendezvous_epoch = 2;
    ASSERT_TRUE(store.save(first).ok());
  }
  EXPECT_EQ(open("", ""), "");
  EXPECT_EQ(open("logging_steps", "1"), "") << "does not change the weights";
  EXPECT_EQ(open("eval_strategy", "epoch"), "") << "does not change the weights";
  EXPECT_EQ(open("learning_rate", "3e-05"),
            "job mrpc: spec.trainer.learning_rate: found 3e-05, expected 5e-05 as before, because "
            "the job continues; change it back, or run with --replace to start again without its "
            "checkpoints");
  EXPECT_THAT(open("per_device_train_batch_size", "16"),
              HasSubstr("found a value with a global batch of 32, expected 16 as before"));
  api::TrainJob other = job("mrpc");
  other.spec.trainer.task = "rte";
  const auto refused = JobStore::open(state(), other, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("spec.trainer.task: found rte, expected mrpc"));
  EXPECT_EQ(open("learning_rate", "3e-05", true), "");
}

TEST_F(JobStoreTest, ComparesTheMeaningOfFlags) {
  using Flags = std::map<std::string, std::string>;
  const auto resume = [&](const Flags& before, const Flags& now) {
    api::TrainJob first = job("mrpc");
    first.spec.trainer.flags.insert(before.begin(), before.end());
    {
      const JobStore store = JobStore::open(state(), first, true).or_throw();
      first.status.rendezvous_epoch = 2;
      EXPECT_TRUE(store.save(first).ok());
    }
    api::TrainJob second = job("mrpc");
    second.spec.trainer.flags.insert(now.begin(), now.end());
    const auto opened = JobStore::open(state(), second, false);
    return opened ? std::string() : opened.error().message;
  };
  const Flags strategy = {{"train_sampling_strategy", "group_by_length"}};
  EXPECT_EQ(resume({{"group_by_length", "true"}}, strategy), "");
  EXPECT_EQ(resume(strategy, {{"group_by_length", "true"}}), "");
  EXPECT_THAT(resume({}, strategy),
              HasSubstr("spec.trainer.group_by_length: found true, expected false as before"));
  EXPECT_THAT(resume(strategy, {}),
              HasSubstr("spec.trainer.group_by_length: found false, expected true as before"));
  EXPECT_EQ(resume({{"seed", "7"}}, {{"seed", "7"}, {"data_seed", "7"}, {"init_seed", "7"}}), "");
  EXPECT_THAT(resume({}, {{"data_seed", "7"}}),
              HasSubstr("spec.trainer.data_seed: found 7, expected 42 as before"));
  EXPECT_EQ(resume({{"max_grad_norm", "0"}}, {{"max_grad_norm", "-1"}}), "");
}

TEST_F(JobStoreTest, RefusesAFinishedJobUnlessItIsReplaced) {
  api::TrainJob first = job("mrpc");
  end(first, api::Phase::kFailed);
  api::TrainJob second = job("mrpc");
  const auto refused = JobStore::open(state(), second, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("job mrpc has already failed"));
  std::ofstream(state() / "mrpc/logs/mrpc-worker-0.log") << "old\n";
  ASSERT_TRUE(JobStore::open(state(), second, true).ok());
  EXPECT_NE(second.metadata.uid, first.metadata.uid);
  EXPECT_EQ(second.status.phase, api::Phase::kPending);
  EXPECT_FALSE(fs::exists(state() / "mrpc/logs/mrpc-worker-0.log"));
}

TEST_F(JobStoreTest, RemembersDiscardedJobsUntilTheirOutputIsTakenOver) {
  const auto open = [&](bool replace, std::int64_t epoch) {
    api::TrainJob opened = job("mrpc");
    const JobStore store = JobStore::open(state(), opened, replace).or_throw();
    opened.status.rendezvous_epoch = epoch;
    EXPECT_TRUE(store.save(opened).ok());
    return opened.metadata.uid;
  };
  const auto has_discarded = [&](const std::string& uid) {
    api::TrainJob resumed = job("mrpc");
    return JobStore::open(state(), resumed, false).or_throw().has_discarded(uid);
  };
  const std::string first = open(false, 2);
  EXPECT_FALSE(has_discarded(first));
  const std::string second = open(true, 0);  // its workers have not met
  EXPECT_TRUE(has_discarded(first)) << "after a restart of `up`, too";
  const std::string third = open(true, 2);
  EXPECT_TRUE(has_discarded(first));
  EXPECT_TRUE(has_discarded(second));
  open(true, 0);
  EXPECT_TRUE(has_discarded(third));
  EXPECT_FALSE(has_discarded(first));
}

TEST_F(JobStoreTest, RefusesNamesThatLeaveItsDirectory) {
  const fs::path project = folder_.path() / "project";
  fs::create_directories(project / "logs");
  std::ofstream(project / "job.json") << "{}";
  for (const std::string name : {"../project", "..", ".", "", "a/b", "/tmp"}) {
    api::TrainJob made = job(name);
    const auto store = JobStore::open(state(), made, true);
    ASSERT_FALSE(store) << name;
    EXPECT_EQ(store.error().code, ExitCode::kUsage) << name;
    EXPECT_THAT(store.error().message, HasSubstr("expected the name of a directory in"));
  }
  EXPECT_TRUE(fs::is_directory(project / "logs"));
  EXPECT_TRUE(fs::exists(project / "job.json"));
}

TEST_F(JobStoreTest, DeletesNothingInADirectoryThatIsNotAJobs) {
  const fs::path project = state() / "project";
  fs::create_directories(project / "logs");
  std::ofstream(project / "job.json") << "{}";
  for (const bool replace : {false, true}) {
    api::TrainJob made = job("project");
    const auto store = JobStore::open(state(), made, replace);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, ExitCode::kUsage);
    EXPECT_THAT(store.error().message, HasSubstr(project.string() + ": found files but no"));
  }
  EXPECT_TRUE(fs::is_directory(project / "logs"));
  EXPECT_TRUE(fs::exists(project / "job.json"));
}

// `up` was killed right after it created the directory.
TEST_F(JobStoreTest, TakesAnEmptyDirectory) {
  fs::create_directories(state() / "mrpc");
  api::TrainJob made = job("mrpc");
  EXPECT_TRUE(JobStore::open(state(), made, false).ok());
}

TEST_F(JobStoreTest, AllowsOneProcessPerJob) {
  api::TrainJob first = job("mrpc");
  const JobStore held = JobStore::open(state(), first, false).or_throw();
  api::TrainJob second = job("mrpc");
  const auto refused = JobStore::open(state(), second, true);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another `tilewright up`"));
}

TEST_F(JobStoreTest, NamesAFileSystemWithoutLocks) {
  const auto open_without_locks = [&] {
    if (!testing::hide_system_call(SYS_flock)) _exit(0);
    api::TrainJob made = job("mrpc");
    const Error error = JobStore::open(state(), made, false).error();
    std::fprintf(stderr, "%s\n", error.message.c_str());
    _exit(static_cast<int>(error.code));
  };
  EXPECT_EXIT(open_without_locks(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::kOutput)),
              "state/mrpc: found a file system without locks .*choose a --state_dir on another");
}

TEST_F(JobStoreTest, NamesAnInvalidJobFile) {
  api::TrainJob made = job("mrpc");
  ASSERT_TRUE(JobStore::open(state(), made, false).ok());
  for (const char* text : {"", "{", "[]", R"({"metadata": {"name": 3}})"}) {
    std::ofstream(state() / "mrpc/job.json") << text;
    const auto store = JobStore::open(state(), made, false);
    ASSERT_FALSE(store) << text;
    EXPECT_EQ(store.error().code, ExitCode::kManifest);
    EXPECT_THAT(store.error().message, HasSubstr("mrpc/job.json is invalid"));
  }
  EXPECT_TRUE(JobStore::open(state(), made, true).ok());
}

TEST_F(JobStoreTest, NamesADirectoryThatItCannotCreate) {
  std::ofstream(state()) << "a file";
  api::TrainJob made = job("mrpc");
  const auto store = JobStore::open(state(), made, false);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ExitCode::kOutput);
  EXPECT_THAT(store.error().message, HasSubstr(state().string()));
}

}  // namespace
}  // namespace tilewright::local
