#include "worker/elastic/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <fstream>
#include <future>
#include <map>

#include "common/contract/environment.h"
#include "common/rendezvous/server.h"
#include "tests/support/paths.h"
#include "tests/support/silent_logger.h"

namespace tilewright::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;

GetVariable environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
  };
}

std::string session_refusal(const std::map<std::string, std::string>& values) {
  try {
    settings_from_environment(environment(values));
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

// A rendezvous server with one job, whose key is in a file.
struct Job {
  explicit Job(int min, int max, int expected) {
    std::ofstream(key_file) << "0123456789abcdef0123456789abcdef";
    settings.min_world = min;
    settings.max_world = max;
    settings.expected = expected;
    start({"127.0.0.1", 0});
    variables = {{env::kRendezvous, net::to_string(server->address())},
                 {env::kJobUid, "job-1"},
                 {env::kJobKeyFile, key_file}};
  }
  std::unique_ptr<Session> worker(int index, const StopSignals* signals = nullptr) {
    auto mine = variables;
    mine[env::kWorkerIndex] = std::to_string(index);
    SessionSettings session_settings = settings_from_environment(environment(mine));
    session_settings.heartbeat_interval = milliseconds(20);
    auto session = std::make_unique<Session>(session_settings, signals, make_silent_logger());
    session->set_isas({"avx2"});
    session->advertise_address(
        {session->address().host, static_cast<std::uint16_t>(40000 + index)});
    return session;
  }
  void restart() {
    const net::Address address = server->address();
    server.reset();
    start(address);
  }
  testing::TemporaryDirectory folder;
  const std::filesystem::path key_file = folder.path() / "job-key";
  rendezvous::Settings settings;
  std::unique_ptr<rendezvous::Server> server;
  std::map<std::string, std::string> variables;

 private:
  void start(const net::Address& address) {
    std::vector<rendezvous::JobSpec> jobs;
    jobs.push_back({"job-1", net::SecretKey::from_file(key_file).or_throw(), settings});
    server = rendezvous::Server::start({.listen = address}, make_silent_logger(), std::move(jobs))
                 .or_throw();
  }
};

auto join_later(Session& session) {
  return std::async(std::launch::async, [&] { return session.join(-1); });
}

TEST(Session, IsStandaloneWithoutACoordinator) {
  Session session(settings_from_environment(environment({})), nullptr, make_silent_logger());
  session.set_isas({"avx2"});
  EXPECT_TRUE(session.is_standalone());
  const auto assignment = session.join(30);
  EXPECT_EQ(assignment->world, 1);
  EXPECT_EQ(assignment->rank, 0);
  EXPECT_EQ(assignment->epoch, 1u);
  EXPECT_EQ(assignment->resume_step, 30);
  EXPECT_FALSE(session.epoch_ended());
  EXPECT_FALSE(session.stop_requested());
  EXPECT_TRUE(session.finish());
}

TEST(Session, ReadsItsSettingsFromTheEnvironment) {
  const SessionSettings settings =
      settings_from_environment(environment({{env::kRendezvous, "[fd00::1]:29400"},
                                             {env::kJobUid, "3f2a"},
                                             {env::kJobKeyFile, "/var/run/tilewright/job-key"},
                                             {env::kWorkerIndex, "3"},
                                             {env::kTls, "true"},
                                             {env::kJoinTimeout, "90"},
                                             {env::kLocalRank, "1"}}));
  EXPECT_TRUE(settings.tls);
  EXPECT_EQ(settings.join_timeout, seconds(90));
  EXPECT_EQ(settings.coordinator->host, "fd00::1");
  EXPECT_EQ(settings.coordinator->port, 29400);
  EXPECT_EQ(settings.job_uid, "3f2a");
  EXPECT_EQ(settings.process, (rendezvous::WorkerProcess{3, 1}));
}

// The operator and `up` set TILEWRIGHT_JOB_UID only, to the UID of one job.
TEST(Session, KnowsWhetherAnAgentNamedTheJob) {
  const auto has_uid_of_agent = [](std::map<std::string, std::string> more) {
    more.insert({{env::kRendezvous, "127.0.0.1:29400"},
                 {env::kJobUid, "run-7"},
                 {env::kJobKeyFile, "/var/run/tilewright/job-key"}});
    return settings_from_environment(environment(more)).uid_of_agent;
  };
  EXPECT_FALSE(has_uid_of_agent({}));
  EXPECT_TRUE(has_uid_of_agent({{env::kTorchelasticRunId, "run-7"}}));
}

// The second coordinator does not know what the first one has assigned.
TEST(Session, JoinsWithTheInstructionSetsThatWereSetLast) {
  Job job(1, 1, 1);
  const auto session = job.worker(0);
  session->set_isas({"avx2", "amx"});
  EXPECT_EQ(session->join(-1)->isa, "amx");
  session->set_isas({"avx2"});
  job.restart();
  EXPECT_EQ(session->join(-1)->isa, "avx2");
}

// An earlier launch of the job had another coordinator.
TEST(Session, JoinsAnEpochAfterOneThatTheCoordinatorDoesNotKnow) {
  Job job(2, 2, 2);
  const auto first = job.worker(0);
  const auto second = job.worker(1);
  auto joining = join_later(*second);
  EXPECT_EQ(first->join(-1)->epoch, 1u);
  joining.get();
  first->raise_epoch(50);
  joining = join_later(*second);
  EXPECT_EQ(first->join(-1)->epoch, 51u);
  EXPECT_EQ(joining.get()->epoch, 51u);
}

TEST(Session, AdvertisesTheAddressOfTheChosenInterface) {
  Job job(1, 1, 1);
  auto variables = job.variables;
  variables[env::kGlooSocketIfname] = "lo";
  const Session local(settings_from_environment(environment(variables)), nullptr,
                      make_silent_logger());
  EXPECT_EQ(local.address().host, "127.0.0.1");
  variables[env::kGlooSocketIfname] = "none0";
  const Session none(settings_from_environment(environment(variables)), nullptr,
                     make_silent_logger());
  try {
    none.address();
    ADD_FAILURE() << "found an interface none0";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), HasSubstr("GLOO_SOCKET_IFNAME: found \"none0\""));
  }
}

// A NetworkPolicy or firewall can allow only known ports.
TEST(Session, AddsTheLocalRankToTheTransportPort) {
  const auto port = [](const std::string& local_rank, const std::string& first) {
    Job job(1, 1, 1);
    auto variables = job.variables;
    variables[env::kLocalRank] = local_rank;
    variables[env::kTransportPort] = first;
    const Session session(settings_from_environment(environment(variables)), nullptr,
                          make_silent_logger());
    EXPECT_EQ(session.address().host, "127.0.0.1");
    return session.address().port;
  };
  EXPECT_EQ(port("0", "29500"), 29500);
  EXPECT_EQ(port("3", "29500"), 29503);
  EXPECT_EQ(port("3", ""), 0) << "any free port";
  EXPECT_EQ(port("3", "0"), 0) << "also any free port";
}

TEST(Session, NamesTheInvalidVariable) {
  std::map<std::string, std::string> good = {
      {env::kRendezvous, "host:1"}, {env::kJobUid, "u"}, {env::kJobKeyFile, "k"}};
  EXPECT_EQ(session_refusal(good), "");
  const auto with = [&](const char* name, const std::string& value) {
    auto bad = good;
    bad[name] = value;
    return session_refusal(bad);
  };
  EXPECT_THAT(with(env::kRendezvous, "host"), HasSubstr("TILEWRIGHT_RENDEZVOUS is \"host\""));
  EXPECT_THAT(with(env::kRendezvous, ":29400"), HasSubstr("expected host:port"));
  EXPECT_THAT(with(env::kJobUid, ""), HasSubstr("TILEWRIGHT_JOB_UID is not set"));
  EXPECT_THAT(with(env::kJobUid, "a b"), HasSubstr("TILEWRIGHT_JOB_UID is \"a b\""));
  EXPECT_THAT(session_refusal({{env::kJobUid, "a\xe9"}}), HasSubstr("TILEWRIGHT_JOB_UID is \"a"))
      << "a process without a coordinator";
  EXPECT_THAT(with(env::kTls, "yes"), HasSubstr("TILEWRIGHT_TLS is \"yes\", expected true or"));
  EXPECT_THAT(with(env::kJobKeyFile, ""), HasSubstr("TILEWRIGHT_JOB_KEY_FILE is not set"));
  EXPECT_THAT(with(env::kWorkerIndex, "-1"), HasSubstr("TILEWRIGHT_WORKER_INDEX is \"-1\""));
  EXPECT_THAT(with(env::kLocalRank, "1x"), HasSubstr("LOCAL_RANK is \"1x\""));
  EXPECT_THAT(with(env::kTransportPort, "65536"),
              HasSubstr("TILEWRIGHT_TRANSPORT_PORT is \"65536\""));
  good[env::kLocalRank] = "3";
  EXPECT_EQ(with(env::kTransportPort, "65532"), "");
  EXPECT_THAT(with(env::kTransportPort, "65533"),
              HasSubstr("TILEWRIGHT_TRANSPORT_PORT is \"65533\", expected at most 65532 for a "
                        "process of LOCAL_RANK 3"));
}

TEST(Session, NamesAMissingKeyFile) {
  SessionSettings settings;
  settings.coordinator = net::Address{"127.0.0.1", 1};
  settings.key_file = "/nowhere/job-key";
  try {
    Session session(settings, nullptr, make_silent_logger());
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("/nowhere/job-key"));
  }
}

TEST(Session, JoinsLosesAPeerRejoinsAndFinishes) {
  Job job(2, 2, 2);
  auto first = job.worker(0);
  auto second = job.worker(1);
  auto joining = join_later(*first);
  EXPECT_EQ(second->join(-1)->rank, 1);
  const auto assignment = joining.get();
  EXPECT_EQ(assignment->peers[1].address, "127.0.0.1:40001");

  std::promise<std::string> end_reason;
  first->on_epoch_end([&](const std::string& reason) { end_reason.set_value(reason); });
  second->leave("stopped by SIGTERM");
  auto reason = end_reason.get_future();
  ASSERT_EQ(reason.wait_for(seconds(60)), std::future_status::ready);
  EXPECT_THAT(reason.get(), HasSubstr("stopped by SIGTERM"));
  EXPECT_TRUE(first->epoch_ended());
  second.reset();

  job.server->expect("job-1", {1, 2, 1, {}}).or_throw();
  EXPECT_EQ(first->join(4)->resume_step, 4);
  EXPECT_TRUE(first->finish());
  auto late = job.worker(1);
  EXPECT_FALSE(late->join(-1)) << "the job is finished";
}

TEST(Session, WaitsAsASpareForLongerThanItsTimeout) {
  Job job(1, 1, 1);
  const auto first = job.worker(0);
  ASSERT_TRUE(first->join(-1));
  // It must learn within the timeout that the others train.
  job.variables[env::kJoinTimeout] = "5";
  const auto spare = job.worker(1);
  auto joined = join_later(*spare);
  EXPECT_EQ(joined.wait_for(seconds(6)), std::future_status::timeout);
  first->leave("done");
  EXPECT_EQ(joined.get()->world, 1);
}

TEST(Session, FinishFailsAfterTheEpochEnded) {
  Job job(2, 2, 2);
  auto first = job.worker(0);
  auto second = job.worker(1);
  auto joining = join_later(*first);
  second->join(-1);
  joining.get();
  second.reset();
  job.server->worker_exited("job-1", 1);
  ASSERT_EQ(net::wait_ready(first->epoch_cancel_token().fd(), POLLIN, net::within(seconds(60))),
            net::Ready::kYes);
  EXPECT_FALSE(first->finish());
  job.server->expect("job-1", {1, 2, 1, {}}).or_throw();
  EXPECT_EQ(first->join(-1)->world, 1);
  EXPECT_TRUE(first->finish());
}

TEST(Session, ASignalCancelsJoin) {
  Job job(2, 2, 2);
  const StopSignals signals;
  auto session = job.worker(0, &signals);
  auto joining = join_later(*session);
  while (job.server->snapshot("job-1")->members.empty()) {
    ASSERT_EQ(net::wait_ready(job.server->changes().fd(), POLLIN, net::within(seconds(60))),
              net::Ready::kYes);
    job.server->take_changed();
  }
  raise(SIGTERM);
  try {
    joining.get();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kTerminated);
  }
  EXPECT_TRUE(session->stop_requested());
  EXPECT_EQ(session->stopped(), ExitCode::kTerminated);
}

}  // namespace
}  // namespace tilewright::elastic
