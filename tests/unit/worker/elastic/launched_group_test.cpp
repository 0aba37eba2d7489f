#include "worker/elastic/launched_group.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>

#include "common/net/key_file.h"
#include "tests/support/local_ports.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/worker/elastic/environment.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

using ::testing::HasSubstr;

// A key-value space between threads.
struct Space {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  int arrived = 0;
  int finished = 0;
};

class ThreadManager : public ProcessManager {
 public:
  ThreadManager(Space& space, int rank, int world) : space_(space), rank_(rank), world_(world) {}
  std::size_t max_text() const override { return 1023; }
  std::string share(std::string_view text, const net::Wait&) override {
    std::unique_lock lock(space_.mutex);
    if (rank_ == 0) space_.text = text;
    ++space_.arrived;
    space_.changed.notify_all();
    if (!space_.changed.wait_for(lock, testing::kTimeout,
                                 [this] { return space_.arrived == world_; }))
      throw Failure(ExitCode::kPeerLost, "not all ranks share");
    return space_.text;
  }
  void finish() override {
    const std::lock_guard lock(space_.mutex);
    ++space_.finished;
  }
  void abort(int) override {}

 private:
  Space& space_;
  const int rank_, world_;
};

LaunchedProcess process_of(int rank, int world, int local_world) {
  LaunchedProcess process;
  process.launcher = "Hydra";
  process.rank = process.local_rank = rank;
  process.world = world;
  process.local_world = local_world;
  process.job = "group-test";
  return process;
}

std::shared_ptr<Logger> quiet() { return make_logger("error"); }

// Each rank, in a thread: forms the group, joins its only membership epoch, finishes. Returns what
// went wrong on each rank, and its rank in the epoch.
struct Outcome {
  std::string error;
  int rank = -1;
  int world = 0;
};
std::vector<Outcome> run(int world, int local_world, const Variables& variables, bool with_manager,
                         Space& space) {
  std::vector<std::future<Outcome>> ranks;
  ranks.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Outcome outcome;
      try {
        LaunchedGroup::Options options;
        options.start_timeout = options.connect_timeout = testing::kTimeout;
        LaunchedGroup group(
            process_of(rank, world, local_world), environment_of(variables),
            with_manager ? std::make_unique<ThreadManager>(space, rank, world) : nullptr, options,
            quiet());
        {
          Session session(group.settings(), nullptr, quiet());
          EXPECT_TRUE(session.has_single_epoch());
          EXPECT_EQ(session.output_uid(), "");
          session.advertise_address({session.address().host, 1});
          session.set_isas({"ref"});
          const auto assignment = session.join(-1);
          if (!assignment) throw Failure(ExitCode::kInternal, "the job is finished");
          outcome.rank = assignment->rank;
          outcome.world = assignment->world;
          if (!session.finish()) throw Failure(ExitCode::kInternal, "the epoch ended first");
        }
        group.finish();
      } catch (const Failure& failure) {
        outcome.error = failure.what();
      }
      return outcome;
    }));
  }
  std::vector<Outcome> outcomes;
  outcomes.reserve(ranks.size());
  for (auto& rank : ranks) outcomes.push_back(rank.get());
  return outcomes;
}

void expect_one_job(const std::vector<Outcome>& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].error, "") << "rank " << rank;
    EXPECT_EQ(outcomes[rank].rank, static_cast<int>(rank));
    EXPECT_EQ(outcomes[rank].world, static_cast<int>(outcomes.size()));
  }
}

TEST(LaunchedGroup, FormsOneJobOnOneHost) {
  Space space;
  expect_one_job(run(4, 4, {}, true, space));
  EXPECT_EQ(space.finished, 4);
  EXPECT_THAT(space.text, HasSubstr(",127.0.0.1:"));
}

// Whether `outcomes` are those of a host that others can reach; otherwise expects its error.
bool is_reachable(const std::vector<Outcome>& outcomes) {
  if (!reachable_addresses().empty()) return true;
  EXPECT_THAT(outcomes[0].error, HasSubstr("has no network address"));
  return false;
}

TEST(LaunchedGroup, FormsOneJobOnSeveralHosts) {
  Space space;
  // A name for a loopback address is not what other hosts use.
  const auto outcomes = run(3, 2, {{"MASTER_ADDR", "localhost"}}, true, space);
  if (!is_reachable(outcomes)) return;
  expect_one_job(outcomes);
  EXPECT_THAT(space.text, ::testing::Not(HasSubstr("127.0.0.1")));
}

TEST(LaunchedGroup, ServesAtTheMasterPortOnSeveralHosts) {
  const testing::ReservedPort port;
  Space space;
  const auto outcomes = run(3, 2, {{"MASTER_PORT", std::to_string(port.number())}}, true, space);
  if (!is_reachable(outcomes)) return;
  expect_one_job(outcomes);
  EXPECT_THAT(space.text, HasSubstr(":" + std::to_string(port.number())));
}

TEST(LaunchedGroup, KeepsTheSecretOfAKeyFile) {
  testing::TemporaryDirectory folder;
  const std::string file = folder.path() / "key";
  ASSERT_TRUE(net::create_key_file(file).ok());
  Space space;
  expect_one_job(run(2, 2, {{"TILEWRIGHT_JOB_KEY_FILE", file}}, true, space));
  EXPECT_THAT(space.text, HasSubstr(",-,"));
  EXPECT_THAT(space.text, ::testing::Not(HasSubstr(testing::read_text(file, 32))));
}

TEST(LaunchedGroup, FormsOneJobWithoutAManagerOnOneHost) {
  testing::TemporaryDirectory folder;
  const testing::ScopedVariable temporary("TMPDIR", folder.path());
  const testing::ReservedPort port;
  Space space;
  expect_one_job(run(3, 3, {{"MASTER_PORT", std::to_string(port.number())}}, false, space));
  // Rank 0 removes the key; the directory has the mode of a secret.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_TRUE(std::filesystem::is_empty(entry)) << entry;
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms::owner_all);
  }
}

std::string group_refusal(const LaunchedProcess& process, const Variables& variables) {
  try {
    LaunchedGroup(process, environment_of(variables), nullptr, {}, quiet());
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

TEST(LaunchedGroup, SaysWhatSeveralHostsNeedWithoutAManager) {
  EXPECT_THAT(group_refusal(process_of(1, 4, 2), {}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(group_refusal(process_of(1, 4, 2), {{"MASTER_ADDR", "node1"}}),
              HasSubstr("TILEWRIGHT_JOB_KEY_FILE is not set, expected a copy of the same file"));
  EXPECT_THAT(
      group_refusal(process_of(1, 4, 2), {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "70000"}}),
      HasSubstr("MASTER_PORT is \"70000\""));
}

TEST(LaunchedGroup, RefusesADirectoryThatOthersCanRead) {
  testing::TemporaryDirectory folder;
  const testing::ScopedVariable temporary("TMPDIR", folder.path());
  const auto shared = folder.path() / ("tilewright-" + std::to_string(geteuid()));
  std::filesystem::create_directory(shared);
  std::filesystem::permissions(shared, std::filesystem::perms::all);
  EXPECT_THAT(group_refusal(process_of(0, 2, 2), {}), HasSubstr("with mode 700"));
}

TEST(LaunchedGroup, RefusesAMasterAddressOfAnotherHost) {
  Space space;
  try {
    // TEST-NET-3: no host has it.
    const LaunchedGroup group(process_of(0, 2, 1), environment_of({{"MASTER_ADDR", "203.0.113.9"}}),
                              std::make_unique<ThreadManager>(space, 0, 1), {}, quiet());
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), HasSubstr("MASTER_ADDR is 203.0.113.9, which is no address of"));
  }
}

TEST(LaunchedGroup, ReportsARank0ThatCannotBeReached) {
  const testing::ReservedPort port;
  Space space;
  space.text = "mpi-1," + std::string(64, 'a') + ",127.0.0.1:" + std::to_string(port.number());
  LaunchedGroup::Options options;
  options.connect_timeout = std::chrono::milliseconds(50);
  try {
    const LaunchedGroup group(process_of(1, 2, 1), environment_of({}),
                              std::make_unique<ThreadManager>(space, 1, 1), options, quiet());
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    EXPECT_THAT(failure.what(), HasSubstr("rank 1 on "));
    EXPECT_THAT(failure.what(), HasSubstr("cannot reach the rendezvous of rank 0 (127.0.0.1:"));
  }
}

TEST(SharedRendezvous, IsReadAsItIsWritten) {
  const std::vector<net::Address> addresses = {{"10.0.0.1", 4000}, {"fd00::1", 4000}};
  const auto read = decode_rendezvous(encode_rendezvous("mpi-1", "00ff", addresses, 1000));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->uid, "mpi-1");
  EXPECT_EQ(read->secret, "00ff");
  EXPECT_EQ(read->addresses, addresses);
}

TEST(SharedRendezvous, LeavesOutAddressesThatDoNotFit) {
  const std::vector<net::Address> addresses(100, {"10.0.0.1", 4000});
  EXPECT_EQ(encode_rendezvous("u", "s", addresses, 34), "u,s,10.0.0.1:4000,10.0.0.1:4000");
  EXPECT_EQ(decode_rendezvous(encode_rendezvous("u", "s", addresses, 4000))->addresses.size(), 16u);
}

TEST(SharedRendezvous, RefusesOtherTexts) {
  for (const std::string& text :
       {std::string(), std::string("u,s"), std::string("u,,10.0.0.1:1"), std::string("u u,s,h:1"),
        std::string("u,s,h"), std::string("u,s,:1"), std::string("u,s,h:0"),
        std::string("u,s,h:1,"), std::string("u,s,h:70000")}) {
    const auto read = decode_rendezvous(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().message.find("h:"), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright::elastic
