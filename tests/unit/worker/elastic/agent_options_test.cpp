// What the flags of torchrun mean to the agent.
#include "worker/elastic/agent_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/environment.h"
#include "common/host/cpu_plan.h"

namespace tilewright::elastic {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string no_variable(const char*) { return ""; }

AgentOptions options(std::vector<std::string> words) {
  AgentOptions result;
  result.command = {"/bin/true"};
  set_torchrun_options(result, launch::take_torchrun_options(words, no_variable).or_throw());
  return result;
}

std::string options_refusal(const std::vector<std::string>& words) {
  try {
    AgentOptions result = options(words);
    complete_options(result, no_variable);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

TEST(AgentOptions, TakesNumbersOfHostsAndProcesses) {
  AgentOptions given = options({"--nnodes=1:4", "--nproc-per-node=3", "--max-restarts=7"});
  EXPECT_EQ(given.min_nodes, 1);
  EXPECT_EQ(given.max_nodes, 4);
  EXPECT_EQ(given.nproc_per_node, 3);
  EXPECT_EQ(given.max_restarts, 7);
  EXPECT_THAT(options_refusal({"--nproc-per-node=gpu"}), HasSubstr("Tilewright trains on CPUs"));
  EXPECT_THAT(options_refusal({"--nproc-per-node=xpu"}), HasSubstr("--nproc-per-node is xpu"));
  EXPECT_THAT(options_refusal({"--nproc-per-node=1025"}), HasSubstr("from 1 to 1024"));
}

TEST(AgentOptions, StartsTheProcessesOfTheCpuPlan) {
  const host::CpuPlan plan = host::plan_cpus(host::this_host(), std::nullopt);
  for (const char* text : {"auto", "cpu"}) {
    const AgentOptions given = options({"--nproc-per-node", text});
    EXPECT_EQ(given.nproc_per_node, static_cast<int>(plan.processes.size()));
    EXPECT_EQ(given.notes, plan.reasons);
  }
}

TEST(AgentOptions, StaticServesAtTheMasterAddressOnNodeRankZero) {
  const AgentOptions given = options({"--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1"});
  EXPECT_EQ(given.serving, Serving::kByRank);
  EXPECT_EQ(given.node_rank, 1);
  EXPECT_EQ(given.rdzv_endpoint, (net::Address{"10.0.0.1", 29500}));
  EXPECT_EQ(options({"--master-port=23456"}).rdzv_endpoint, (net::Address{"127.0.0.1", 23456}));
  EXPECT_EQ(options({"--rdzv-backend=static", "--rdzv-endpoint=a:1"}).rdzv_endpoint,
            (net::Address{"a", 1}));
  EXPECT_EQ(options({"--master-addr=fd00::1"}).rdzv_endpoint, (net::Address{"fd00::1", 29500}));
  EXPECT_EQ(options({}).rdzv_endpoint, std::nullopt) << "one host: a free port";
  EXPECT_EQ(options({}).node_rank, 0);
}

TEST(AgentOptions, C10dServesOnTheHostOfTheEndpoint) {
  const AgentOptions given =
      options({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1"});
  EXPECT_EQ(given.serving, Serving::kByAddress);
  EXPECT_EQ(given.node_rank, std::nullopt);
  EXPECT_EQ(given.rdzv_endpoint, (net::Address{"node1", 29400}));
  const auto endpoint = [](const std::string& text) {
    return options({"--rdzv-backend=c10d", "--rdzv-endpoint=" + text}).rdzv_endpoint;
  };
  EXPECT_EQ(endpoint("node1:1234"), (net::Address{"node1", 1234}));
  EXPECT_EQ(endpoint("[fd00::1]:1234"), (net::Address{"fd00::1", 1234}));
  EXPECT_EQ(endpoint("[fd00::1]"), (net::Address{"fd00::1", 29400}));
  EXPECT_EQ(endpoint("fd00::1"), (net::Address{"fd00::1", 29400}));
  EXPECT_THAT(options_refusal({"--rdzv-backend=c10d", "--rdzv-endpoint=a:x"}), HasSubstr("a:x"));
  EXPECT_THAT(options({"--rdzv-backend=c10d", "--rdzv-endpoint=a", "--master-port=1"}).notes,
              ElementsAre(HasSubstr("--master-port has no effect with the backend c10d")));
  EXPECT_THAT(options_refusal({"--rdzv-backend=etcd-v2"}), HasSubstr("expected c10d or static"));
}

TEST(AgentOptions, StandaloneIgnoresTheRendezvousFlags) {
  AgentOptions given = options({"--standalone", "--nnodes=1:4", "--rdzv-backend=etcd",
                                "--rdzv-endpoint=a:1", "--rdzv-id=x"});
  EXPECT_EQ(given.max_nodes, 1);
  EXPECT_EQ(given.rdzv_endpoint, std::nullopt);
  EXPECT_EQ(given.rdzv_id, "");
  EXPECT_THAT(options_refusal({"--standalone", "--nnodes=2"}),
              HasSubstr("--standalone is for one host"));
}

TEST(AgentOptions, TakesTheKeysOfRdzvConf) {
  const AgentOptions given =
      options({"--rdzv-conf=tls=true,is_host=false,join_timeout=60,last_call_timeout=5,"
               "close_timeout=7,keep_alive_interval=2,keep_alive_max_attempt=4,read_timeout=9"});
  EXPECT_TRUE(given.tls);
  EXPECT_EQ(given.serving, Serving::kNever);
  EXPECT_EQ(given.rdzv_timeout, seconds(60));
  EXPECT_EQ(given.rendezvous.join_quiet_period, seconds(5));
  EXPECT_EQ(given.rendezvous.close_timeout, seconds(7));
  EXPECT_EQ(given.rendezvous.heartbeat_timeout, seconds(8));
  EXPECT_THAT(given.notes, ElementsAre(HasSubstr("--rdzv-conf read_timeout has no effect")));
  EXPECT_EQ(options({"--rdzv-conf=is_host=1"}).serving, Serving::kAlways);
  EXPECT_THAT(options_refusal({"--rdzv-conf=is_host=maybe"}), HasSubstr("expected true or false"));
  EXPECT_EQ(options({"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3"})
                .rendezvous.heartbeat_timeout,
            seconds(3));
  for (const char* bad : {"keep_alive_interval=1,keep_alive_max_attempt=1",
                          "keep_alive_max_attempt=2,keep_alive_interval=0.5"})
    EXPECT_THAT(options_refusal({std::string("--rdzv-conf=") + bad}),
                HasSubstr("1 s for keep_alive_interval x keep_alive_max_attempt, expected at least "
                          "3 s"))
        << bad;
  for (const char* bad : {"timeout=0", "timeout=-1", "timeout=soon", "timeout=inf", "timeout="})
    EXPECT_THAT(options_refusal({std::string("--rdzv-conf=") + bad}),
                HasSubstr("expected a number above 0"))
        << bad;
}

TEST(AgentOptions, TakesTheTimeToStop) {
  EXPECT_EQ(options({}).grace_period, seconds(30));  // that of torchrun
  EXPECT_EQ(options({"--shutdown-timeout=300"}).grace_period, seconds(300));
  EXPECT_THAT(options_refusal({"--shutdown-timeout=10000001"}),
              HasSubstr("--shutdown-timeout is \"10000001\", expected an integer from 0 to"));
}

TEST(AgentOptions, TakesLogsAndNames) {
  const AgentOptions given =
      options({"--log-dir=/logs", "--redirects=0:1,2:3", "--tee=2", "--local-ranks-filter=0,2",
               "--role=trainer", "--local-addr=10.0.0.7", "--monitor-interval=5"});
  EXPECT_EQ(given.logs.directory, "/logs");
  EXPECT_EQ(given.logs.redirects.of(0), 1);
  EXPECT_EQ(given.logs.redirects.of(1), 0);
  EXPECT_EQ(given.logs.redirects.of(2), 3);
  EXPECT_EQ(given.logs.tee.of(5), 2);
  EXPECT_EQ(given.logs.shown_ranks, (std::set<int>{0, 2}));
  EXPECT_EQ(given.role, "trainer");
  EXPECT_EQ(given.local_addr, "10.0.0.7");
  EXPECT_THAT(given.notes, ElementsAre(HasSubstr("--monitor-interval has no effect")));
}

TEST(AgentOptions, TakesAnInterfaceAndARangeOfPorts) {
  AgentOptions given;
  set_interface(given, "lo");
  EXPECT_EQ(given.local_addr, "127.0.0.1");
  set_port_range(given, "20000-20100");
  EXPECT_EQ(given.ports->first, 20000);
  EXPECT_EQ(given.ports->last, 20100);
  for (const char* bad : {"", "20000", "2-1", "0-10", "1-65536", "a-b", "1-"}) {
    try {
      set_port_range(given, bad);
      ADD_FAILURE() << bad;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("expected FIRST-LAST")) << bad;
    }
  }
}

TEST(AgentOptions, SeveralHostsNeedAnEndpointAndAKey) {
  EXPECT_THAT(options_refusal({"--nnodes=2"}), HasSubstr("--rdzv_endpoint is missing"));
  EXPECT_THAT(options_refusal({"--nnodes=2", "--rdzv-endpoint=a:1"}),
              HasSubstr("--rdzv_key_file is missing"));
  AgentOptions given = options({"--nnodes=2", "--rdzv-endpoint=a:1"});
  given.rdzv_key_file = "key";
  complete_options(given, no_variable);
  EXPECT_EQ(given.rdzv_id, "none") << "torchrun's default";
}

TEST(AgentOptions, InAPodTheOperatorServesTheRendezvous) {
  AgentOptions given = options({"--nnodes=1:4", "--rdzv-backend=c10d",
                                "--rdzv-endpoint=job-worker-0:23456", "--node-rank=3"});
  complete_options(given, [](const char* name) -> std::string {
    if (name == std::string(env::kRendezvous)) return "10.0.0.9:29400";
    if (name == std::string(env::kWorkerIndex)) return "2";
    if (name == std::string(env::kJobUid) || name == std::string(env::kJobKeyFile)) return "x";
    return "";
  });
  EXPECT_TRUE(given.external_rendezvous);
  EXPECT_EQ(given.worker_index, 2);
  EXPECT_EQ(given.max_nodes, 1);
  EXPECT_THAT(given.notes, ElementsAre(HasSubstr("the rendezvous flags have no effect")));
}

}  // namespace
}  // namespace tilewright::elastic
