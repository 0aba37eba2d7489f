#include "worker/elastic/launcher.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/paths.h"
#include "tests/unit/worker/elastic/environment.h"

namespace tilewright::elastic {
namespace {

using ::testing::HasSubstr;

std::optional<LaunchedProcess> detect(const Variables& variables) {
  return detect_launcher(environment_of(variables));
}

std::string refusal(const Variables& variables) {
  try {
    detect(variables);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    return failure.what();
  }
  return "";
}

void expect_place(const LaunchedProcess& process, int rank, int world, int local_rank,
                  int local_world) {
  EXPECT_EQ(process.rank, rank);
  EXPECT_EQ(process.world, world);
  EXPECT_EQ(process.local_rank, local_rank);
  EXPECT_EQ(process.local_world, local_world);
}

// What mpiexec.hydra of MPICH 4.0 sets for the third of four processes on two hosts.
TEST(Launcher, ReadsHydrasVariables) {
  const auto process = detect({{"PMI_RANK", "2"},
                               {"PMI_SIZE", "4"},
                               {"PMI_FD", "8"},
                               {"MPI_LOCALNRANKS", "2"},
                               {"MPI_LOCALRANKID", "0"}});
  ASSERT_TRUE(process);
  expect_place(*process, 2, 4, 0, 2);
  EXPECT_EQ(process->space, KeyValueSpace::kPmi1);
  EXPECT_EQ(process->launcher, "Hydra");
  EXPECT_FALSE(process->on_one_host());
}

// What mpirun of Open MPI 4.1 sets for the last of two processes on one host.
TEST(Launcher, ReadsOpenMpisVariables) {
  const auto process = detect({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_NAMESPACE", "619642881"},
                               {"PMIX_RANK", "1"}});
  ASSERT_TRUE(process);
  expect_place(*process, 1, 2, 1, 2);
  EXPECT_EQ(process->space, KeyValueSpace::kPmix);
  EXPECT_EQ(process->launcher, "Open MPI");
  EXPECT_TRUE(process->on_one_host());
}

// srun -N2 -n5 with each kind of --mpi, the last task.
TEST(Launcher, ReadsSlurmsVariables) {
  const Variables slurm = {{"SLURM_STEP_NUM_TASKS", "5"},
                           {"SLURM_PROCID", "4"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NODEID", "1"},
                           {"SLURM_JOB_ID", "77"},
                           {"SLURM_STEP_ID", "3"},
                           {"SLURM_STEP_TASKS_PER_NODE", "3,2"}};
  const auto none = detect(slurm);
  ASSERT_TRUE(none);
  expect_place(*none, 4, 5, 1, 2);
  EXPECT_EQ(none->space, KeyValueSpace::kNone);
  EXPECT_EQ(none->launcher, "srun");
  EXPECT_EQ(none->job, "slurm-77-3");
  Variables interactive = slurm;
  interactive["SLURM_STEP_ID"] = "4294967290";  // of a shell that salloc starts
  EXPECT_EQ(detect(interactive)->job, "slurm-77-4294967290");
  interactive["SLURM_STEP_ID"] = "../3";
  EXPECT_EQ(detect(interactive)->job, "slurm-77-0");

  Variables pmix = slurm;
  pmix["PMIX_NAMESPACE"] = "slurm.pmix.77.3";
  EXPECT_EQ(detect(pmix)->space, KeyValueSpace::kPmix);

  Variables pmi2 = slurm;
  pmi2.insert({{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}, {"PMI_FD", "9"}});
  const auto process = detect(pmi2);
  ASSERT_TRUE(process);
  expect_place(*process, 4, 5, 1, 2);
  EXPECT_EQ(process->space, KeyValueSpace::kPmi1);
}

TEST(Launcher, ReadsTorchsVariables) {
  const auto process = detect({{"WORLD_SIZE", "4"},
                               {"RANK", "3"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "node1"}});
  ASSERT_TRUE(process);
  expect_place(*process, 3, 4, 1, 2);
  EXPECT_EQ(process->space, KeyValueSpace::kNone);
}

TEST(Launcher, FindsNoneForOneProcessOrWithARendezvous) {
  EXPECT_FALSE(detect({}));
  EXPECT_FALSE(detect({{"WORLD_SIZE", "1"}, {"PMI_SIZE", "1"}, {"PMI_FD", "6"}}));
  EXPECT_FALSE(detect({{"WORLD_SIZE", "unset"}}));
  EXPECT_FALSE(detect({{"WORLD_SIZE", "4"}, {"TILEWRIGHT_RENDEZVOUS", "node0:29400"}}));
  // The agent, started on each host by mpirun, sets the rendezvous for its processes.
  EXPECT_FALSE(detect({{"PMI_SIZE", "2"}, {"TILEWRIGHT_RENDEZVOUS", "node0:29400"}}));
}

TEST(Launcher, RefusesProcessesThatCannotFormOneJob) {
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE=4 without"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"},
                       {"RANK", "1"},
                       {"MASTER_ADDR", "node1"},
                       {"TORCHELASTIC_RUN_ID", "none"}}),
              HasSubstr("of torchrun"));
}

TEST(Launcher, RefusesRanksOutOfBounds) {
  EXPECT_THAT(refusal({{"PMI_SIZE", "4"}}),
              HasSubstr("PMI_RANK is not set, expected an integer from 0 to 3"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "4"}, {"PMI_RANK", "4"}}), HasSubstr("PMI_RANK is \"4\""));
  EXPECT_THAT(refusal({{"PMI_SIZE", "4"}, {"PMI_RANK", "-1"}}), HasSubstr("PMI_RANK is \"-1\""));
  EXPECT_THAT(refusal({{"PMI_SIZE", "100000"}, {"PMI_RANK", "1"}}),
              HasSubstr("PMI_SIZE is \"100000\", expected an integer from 1 to 1024"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK is \"2\""));
}

TEST(Launcher, ReadsSlurmsTasksPerNode) {
  EXPECT_EQ(tasks_on_node("2", 0), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1);
  for (const char* text :
       {"", "2(x3),1", "x", "2(3)", "2(x", "2(x)", "0(x9)", "-1(x9)", "2(x9", "99999999999(x9)"}) {
    EXPECT_EQ(tasks_on_node(text, 4), std::nullopt) << text;
  }
  EXPECT_EQ(tasks_on_node("1(x65536),1(x65536),7", 131072), std::nullopt);
}

class CpuBindingTest : public ::testing::Test {
 protected:
  void add(const std::string& pid, const std::string& name, const std::string& parent,
           const std::string& cpus) {
    std::filesystem::create_directory(proc_.path() / pid);
    std::ofstream(proc_.path() / pid / "status")
        << "Name:\t" << name << "\nPPid:\t" << parent << "\nCpus_allowed_list:\t" << cpus << "\n";
  }
  testing::TemporaryDirectory proc_;
};

TEST_F(CpuBindingTest, ComparesWithTheLaunchersDaemon) {
  add("self", "tilewright-worker", "30", "4-7");
  add("30", "bash", "20", "4-7");  // a wrapper script has the CPUs of its rank
  add("20", "hydra_pmi_proxy", "10", "0-31,64-95");
  add("10", "sshd", "1", "0-127");
  const CpuBinding binding = read_cpu_binding(proc_.path());
  EXPECT_EQ(binding.own, 4);
  EXPECT_EQ(binding.daemon, 64);
  EXPECT_TRUE(binding.bound());
}

TEST_F(CpuBindingTest, IsNotBoundWithTheCpusOfTheDaemon) {
  add("self", "tilewright-worker", "20", "0-15");
  add("20", "orted", "10", "0-15");  // under taskset or in a cpuset
  add("10", "bash", "1", "0-31");
  EXPECT_FALSE(read_cpu_binding(proc_.path()).bound());
}

TEST_F(CpuBindingTest, IsUnknownWithoutProc) {
  EXPECT_FALSE(read_cpu_binding(proc_.path()).bound());
  add("self", "tilewright-worker", "20", "0-x");
  add("20", "orted", "1", "0-15");
  EXPECT_FALSE(read_cpu_binding(proc_.path()).bound());
}

}  // namespace
}  // namespace tilewright::elastic
