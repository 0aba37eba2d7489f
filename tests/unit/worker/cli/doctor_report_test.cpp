// The lines of `tilewright-worker doctor` on machines that tests describe.
#include "worker/cli/doctor_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host/cpu_list.h"
#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

DoctorFindings findings_on(host::Host host) {
  DoctorFindings findings;
  findings.host = std::move(host);
  findings.huge_pages = "always [madvise] never";
  return findings;
}

std::string text(const DoctorFindings& findings) {
  std::string result;
  for (const auto& [what, value] : describe_cpus(findings))
    result += fmt::format("{}: {}\n", what, value);
  return result;
}

TEST(DoctorReport, ShowsThePlanOfTheProcesses) {
  EXPECT_EQ(text(findings_on(host::saved_host(host::k240Cpus))),
            "cores: 120 physical cores with 240 allowed CPUs\n"
            "allowed CPUs: 0-239\n"
            "NUMA nodes: node 0: CPUs 0-59,120-179; node 1: CPUs 60-119,180-239\n"
            "CPU quota: none\n"
            "other trainings: none\n"
            "processes: 2 with --nproc-per-node auto\n"
            "  process 0: 60 threads on CPUs 0-59; may use CPUs 0-59,120-179; memory of node 0\n"
            "  process 1: 60 threads on CPUs 60-119; may use CPUs 60-119,180-239; memory of node "
            "1\n"
            "  reason: 2 processes: one for each NUMA node with allowed CPUs.\n"
            "  reason: The 240 allowed CPUs are hyper-threads of 120 cores; a core runs one "
            "thread, because its hyper-threads share its multiply units.\n"
            "threads per process: 60\n");
}

TEST(DoctorReport, NamesTheQuota) {
  const std::string lines = text(findings_on(host::saved_host(host::kTwoCpus, "", 0.5)));
  EXPECT_THAT(lines, HasSubstr("CPU quota: 0.5 CPUs\n"));
  EXPECT_THAT(lines, HasSubstr("  process 0: 1 thread, not bound to cores; may use CPUs 0-1\n"));
  EXPECT_THAT(lines, HasSubstr("The CPU quota of 0.5 CPUs allows 1 thread in total. The kernel "
                               "moves it,"));
  EXPECT_THAT(lines, HasSubstr("threads per process: 1\n"));
}

TEST(DoctorReport, NamesHyperThreadsThatOtherProgramsMayUse) {
  EXPECT_THAT(text(findings_on(host::saved_host(host::k16xlarge, "0-3"))),
              HasSubstr("reason: CPUs 0-3 share their cores with CPUs 32-35, which this process "
                        "may not use"));
}

TEST(DoctorReport, CountsOtherTrainingsOnTheSameCpus) {
  DoctorFindings findings = findings_on(host::saved_host(host::k16xlarge));
  findings.siblings = {{.pid = 41, .shared_cpus = {0, 1}}};
  EXPECT_THAT(text(findings), HasSubstr("other trainings: 1 process on CPUs 0-1 (pid 41), which "
                                        "slows down a training here\n"));
  findings.siblings.push_back({.pid = 42, .shared_cpus = {1, 2, 5}});
  EXPECT_THAT(text(findings), HasSubstr("other trainings: 2 processes on CPUs 0-2,5 (pid 41, 42), "
                                        "which slow down a training here\n"));
  findings.siblings.resize(100, {.pid = 7, .shared_cpus = {0}});
  EXPECT_THAT(text(findings), AllOf(HasSubstr("100 processes"), HasSubstr(", 7, ...)")));
}

TEST(DoctorReport, SaysThatAHypervisorHidesAmx) {
  DoctorFindings findings = findings_on(host::saved_host(host::kTwoCpus));
  EXPECT_THAT(text(findings), Not(HasSubstr("AMX")));
  findings.amx = {.intel = true, .family = 6, .model = 143, .hypervisor = true};
  EXPECT_THAT(text(findings), HasSubstr("AMX: the hypervisor hides AMX, which this CPU model has"));
}

TEST(DoctorReport, SaysThatHugePagesAreSwitchedOff) {
  DoctorFindings findings = findings_on(host::saved_host(host::kTwoCpus));
  EXPECT_THAT(text(findings), Not(HasSubstr("huge pages")));
  findings.huge_pages = "always madvise [never]";
  EXPECT_THAT(text(findings), HasSubstr("huge pages: switched off in /sys/kernel"));
}

}  // namespace
}  // namespace tilewright::cli
