#include "common/launch/torchrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace tilewright::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

GetVariable environment(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

TorchrunOptions take(Words& words, const Variables& variables = {}) {
  auto options = take_torchrun_options(words, environment(variables));
  EXPECT_TRUE(options.ok()) << (options.ok() ? "" : options.error().message);
  return options.ok() ? *options : TorchrunOptions();
}

TorchrunOptions parse(Words words, const Variables& variables = {}) {
  return take(words, variables);
}

std::string torchrun_refusal(Words words, const Variables& variables = {}) {
  const auto options = take_torchrun_options(words, environment(variables));
  if (options.ok()) return "";
  EXPECT_EQ(options.error().code, ExitCode::kUsage);
  return options.error().message;
}

// Each flag of torchrun, with a value, and the member that holds it.
struct Case {
  const char* name;
  const char* value;
  std::optional<std::string> TorchrunOptions::*member;
  bool has_variable = true;
};
const Case kCases[] = {
    {"nnodes", "1:4", &TorchrunOptions::nnodes},
    {"nproc-per-node", "2", &TorchrunOptions::nproc_per_node},
    {"rdzv-backend", "c10d", &TorchrunOptions::rdzv_backend},
    {"rdzv-endpoint", "host:29400", &TorchrunOptions::rdzv_endpoint},
    {"rdzv-id", "run-7", &TorchrunOptions::rdzv_id},
    {"rdzv-conf", "timeout=60", &TorchrunOptions::rdzv_conf},
    {"max-restarts", "10", &TorchrunOptions::max_restarts},
    {"monitor-interval", "0.5", &TorchrunOptions::monitor_interval},
    {"node-rank", "3", &TorchrunOptions::node_rank},
    {"master-addr", "10.0.0.1", &TorchrunOptions::master_addr},
    {"master-port", "23456", &TorchrunOptions::master_port},
    {"local-addr", "10.0.0.2", &TorchrunOptions::local_addr},
    {"log-dir", "/tmp/logs", &TorchrunOptions::log_dir},
    {"redirects", "0:1,1:2", &TorchrunOptions::redirects},
    {"tee", "3", &TorchrunOptions::tee},
    {"local-ranks-filter", "0,2", &TorchrunOptions::local_ranks_filter},
    {"start-method", "fork", &TorchrunOptions::start_method},
    {"role", "trainer", &TorchrunOptions::role},
    {"event-log-handler", "null", &TorchrunOptions::event_log_handler},
    {"logs-specs", "mine", &TorchrunOptions::logs_specs, false},
    {"numa-binding", "node", &TorchrunOptions::numa_binding, false},
    {"signals-to-handle", "SIGTERM", &TorchrunOptions::signals_to_handle},
    {"shutdown-timeout", "300", &TorchrunOptions::shutdown_timeout},
    {"log-line-prefix-template", "[${rank}]", &TorchrunOptions::log_line_prefix_template},
    {"duplicate-stdout-filters", "loss", &TorchrunOptions::duplicate_stdout_filters},
    {"duplicate-stderr-filters", "error", &TorchrunOptions::duplicate_stderr_filters},
};

std::string underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

TEST(Torchrun, TakesEachFlagInBothSpellingsAndForms) {
  for (const Case& c : kCases) {
    for (const std::string& name : {std::string(c.name), underscored(c.name)}) {
      SCOPED_TRACE(name);
      EXPECT_EQ(parse({"--" + name, c.value}).*c.member, c.value);
      EXPECT_EQ(parse({"--" + name + "=" + c.value}).*c.member, c.value);
    }
    EXPECT_EQ(parse({}).*c.member, std::nullopt) << c.name;
    EXPECT_EQ(
        torchrun_refusal({std::string("--") + c.name}).substr(0, std::string(c.name).size() + 18),
        std::string("--") + c.name + ": found no value");
  }
}

TEST(Torchrun, TakesEachVariableUnlessTheFlagIsGiven) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::string variable = "PET_" + underscored(c.name);
    std::ranges::transform(variable, variable.begin(), ::toupper);
    const auto found = parse({}, {{variable, c.value}}).*c.member;
    EXPECT_EQ(found, c.has_variable ? std::optional<std::string>(c.value) : std::nullopt);
    const std::string other = std::string(c.name) == "start-method" ? "spawn" : "1";
    EXPECT_EQ(parse({std::string("--") + c.name, other}, {{variable, c.value}}).*c.member, other);
  }
  EXPECT_EQ(torchrun_refusal({}, {{"PET_MAX_RESTARTS", "many"}}),
            "PET_MAX_RESTARTS: found \"many\", expected an integer from 0");
  EXPECT_EQ(parse({"--rdzv-id="}, {{"PET_RDZV_ID", "run-7"}}).rdzv_id, std::nullopt);
}

TEST(Torchrun, TakesSwitches) {
  EXPECT_FALSE(parse({}).standalone);
  EXPECT_TRUE(parse({"--standalone"}).standalone);
  EXPECT_TRUE(parse({}, {{"PET_STANDALONE", "1"}}).standalone);
  EXPECT_FALSE(parse({}, {{"PET_STANDALONE", "0"}}).standalone);
  EXPECT_TRUE(parse({"--standalone"}, {{"PET_STANDALONE", "0"}}).standalone);
  EXPECT_EQ(torchrun_refusal({}, {{"PET_STANDALONE", "yes"}}),
            "PET_STANDALONE: found \"yes\", expected 0 or 1");
  EXPECT_EQ(torchrun_refusal({"--standalone=1"}),
            "--standalone: found the value \"1\", expected none");
  EXPECT_TRUE(parse({"-m"}).module);
  EXPECT_TRUE(parse({"--module"}).module);
  EXPECT_TRUE(parse({"--no_python"}).no_python);
  EXPECT_TRUE(parse({"--run-path"}).run_path);
  EXPECT_TRUE(parse({"--virtual_local_rank"}).virtual_local_rank);
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_TRUE(parse({"--nnodes", "1", "--help", "--unknown"}).help);
}

TEST(Torchrun, TakesLettersAndBeginningsOfNames) {
  EXPECT_EQ(parse({"-r", "3"}).redirects, "3");
  EXPECT_EQ(parse({"-r3"}).redirects, "3");
  EXPECT_EQ(parse({"-t=0:2"}).tee, "0:2");
  EXPECT_EQ(parse({"--nproc", "2"}).nproc_per_node, "2");
  EXPECT_EQ(parse({"--nnode=2"}).nnodes, "2");
  EXPECT_THAT(torchrun_refusal({"--rdzv", "x"}),
              HasSubstr("--rdzv: ambiguous flag, expected --rdzv-backend or --rdzv-endpoint"));
}

TEST(Torchrun, StopsAtTheScript) {
  Words words = {"--nnodes=1:4", "--nproc_per_node", "2", "run_qa.py", "--bf16", "--tee", "x"};
  EXPECT_EQ(take(words).tee, std::nullopt);
  EXPECT_THAT(words, ElementsAre("run_qa.py", "--bf16", "--tee", "x"));
  words = {"--nproc_per_node=2", "--", "train", "--", "--bf16"};
  take(words);
  EXPECT_THAT(words, ElementsAre("train", "--", "--bf16"));
  words = {"--standalone"};
  take(words);
  EXPECT_THAT(words, IsEmpty());
}

TEST(Torchrun, RefusesUnknownFlagsAndBadValues) {
  EXPECT_EQ(torchrun_refusal({"--nproc_per_nod", "2"}), "");  // the beginning of one name
  EXPECT_EQ(torchrun_refusal({"--nproc_par_node", "2"}),
            "--nproc_par_node: unknown flag; did you mean --nproc-per-node?");
  EXPECT_EQ(torchrun_refusal({"--bf16"}), "--bf16: unknown flag");
  EXPECT_EQ(torchrun_refusal({"-x"}), "-x: unknown flag");
  EXPECT_EQ(torchrun_refusal({"--nnodes", "--tee"}),
            "--nnodes: found no value, expected N or MIN:MAX, integers from 1 with MIN at most "
            "MAX");
  for (const char* bad :
       {"0", "2:1", "1:", ":2", "1:2:3", "x", "", "-1", "1 ", "99999999999999999999"})
    EXPECT_THAT(torchrun_refusal({"--nnodes", bad}), HasSubstr("expected N or MIN:MAX")) << bad;
  for (const char* bad : {"0", "-1", "many", "2.5", ""})
    EXPECT_THAT(torchrun_refusal({"--nproc-per-node", bad}),
                HasSubstr("expected auto, cpu or an integer"))
        << bad;
  for (const char* good : {"auto", "cpu", "gpu", "xpu", "4"})
    EXPECT_EQ(parse({"--nproc-per-node", good}).nproc_per_node, good);
  for (const char* bad : {"4", "0:4", "0", "0:", ":1", "0:1,", "a:1"})
    EXPECT_EQ(torchrun_refusal({"--tee", bad}).empty(), std::string(bad) == "0") << bad;
  EXPECT_THAT(torchrun_refusal({"--max-restarts", "-1"}), HasSubstr("expected an integer from 0"));
  EXPECT_THAT(torchrun_refusal({"--master-port", "65536"}),
              HasSubstr("an integer from 0 to 65535"));
  EXPECT_THAT(torchrun_refusal({"--monitor-interval", "soon"}), HasSubstr("a number of seconds"));
  EXPECT_THAT(torchrun_refusal({"--monitor-interval", "nan"}), HasSubstr("a number of seconds"));
  EXPECT_THAT(torchrun_refusal({"--shutdown-timeout", "1.5"}),
              HasSubstr("expected an integer from 0"));
  EXPECT_THAT(torchrun_refusal({"--start-method", "thread"}),
              HasSubstr("spawn, fork or forkserver"));
  EXPECT_THAT(torchrun_refusal({"--local-ranks-filter", "0,"}), HasSubstr("local ranks"));
}

TEST(Torchrun, SaysWhichOptionsHaveNoEffect) {
  EXPECT_THAT(unused_options(parse({"--nnodes=2", "--tee=3"})), IsEmpty());
  EXPECT_THAT(
      unused_options(parse({"--monitor-interval=5", "--start-method=fork", "--event-log-handler=x",
                            "--logs-specs=x", "--numa-binding=node", "--signals-to-handle=SIGUSR1",
                            "--log-line-prefix-template=x", "--duplicate-stdout-filters=x",
                            "--duplicate-stderr-filters=x", "--virtual-local-rank", "--use_env"})),
      ElementsAre(HasSubstr("--monitor-interval has no effect: "),
                  HasSubstr("--start-method has no effect: "),
                  HasSubstr("--event-log-handler has no effect: "),
                  HasSubstr("--logs-specs has no effect: "),
                  HasSubstr("--numa-binding has no effect: "),
                  HasSubstr("--signals-to-handle has no effect: "),
                  HasSubstr("--log-line-prefix-template has no effect: "),
                  HasSubstr("--duplicate-stdout-filters has no effect: "),
                  HasSubstr("--duplicate-stderr-filters has no effect: "),
                  HasSubstr("--virtual-local-rank has no effect: "),
                  HasSubstr("--use-env has no effect: ")));
}

TEST(Torchrun, TakesFurtherFlagsOfTheAgent) {
  std::string file, check = "not given";
  const std::vector<ExtraFlag> extra = {
      {"hostfile", "FILE", "Hosts", [&](const std::string& text) { file = text; }},
      {"check", "", "Check", [&](const std::string& text) { check = text; }}};
  Words words = {"--hostfile=hosts", "--nnodes", "2", "--check", "train"};
  const auto options = take_torchrun_options(words, environment({}), extra);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->nnodes, "2");
  EXPECT_EQ(file, "hosts");
  EXPECT_EQ(check, "");
  EXPECT_THAT(words, ElementsAre("train"));
  words = {"--hostfile"};
  EXPECT_EQ(take_torchrun_options(words, environment({}), extra).error().message,
            "--hostfile: found no value, expected FILE");
  const std::string help = torchrun_help(extra);
  for (const Case& c : kCases) EXPECT_THAT(help, HasSubstr(std::string("--") + c.name + " "));
  EXPECT_THAT(help, HasSubstr("--hostfile FILE"));
}

}  // namespace
}  // namespace tilewright::launch
