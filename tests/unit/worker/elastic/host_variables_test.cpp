#include "worker/elastic/host_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/strings.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostVariables of(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return variables_for_hosts(environment.data());
}

Status set_from(std::vector<std::string> lines) {
  std::size_t next = 0;
  return set_variables_of_host_group([&](std::size_t) {
    return next < lines.size() ? std::optional(lines[next++]) : std::nullopt;
  });
}

TEST(HostVariables, AreThoseThatTheUserSetsForTheWorker) {
  const HostVariables found =
      of({"PATH=/bin", "OMP_NUM_THREADS=4", "HF_HUB_CACHE=/shared/a b", "HF_TOKEN=hf_x",
          "TILEWRIGHT_ISA=avx2", "LOGLEVEL=", "GLOO_SOCKET_IFNAME=eth0", "KUBECONFIG=/k",
          "TILEWRIGHT_JOB_KEY_FILE=/key", "RANK=3", "LD_PRELOAD=/lib/a.so", "KMP_BLOCKTIME=1",
          "https_proxy=http://proxy:3128", "no_proxy=hub.local"});
  EXPECT_THAT(found.lines,
              ElementsAre("OMP_NUM_THREADS=4", "HF_HUB_CACHE=/shared/a b", "HF_TOKEN=hf_x",
                          "TILEWRIGHT_ISA=avx2", "GLOO_SOCKET_IFNAME=eth0",
                          "https_proxy=http://proxy:3128", "no_proxy=hub.local"));
  EXPECT_THAT(found.notes, IsEmpty());
}

TEST(HostVariables, SayWhichOneIsTooLong) {
  const std::string large = "HF_HOME=/" + std::string(kMaxVariableLine, 'x');
  const HostVariables found = of({large.c_str(), "HF_HUB_CACHE=/a\n/b"});
  EXPECT_THAT(found.lines, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("HF_HOME: not passed to the other hosts"),
                                       HasSubstr("HF_HUB_CACHE: not passed to the other hosts")));
  const std::string fits = "HF_HOME=/" + std::string(4000, 'x');
  const std::vector<const char*> many(10, fits.c_str());
  EXPECT_EQ(of(many).lines.size(), 8U);
  EXPECT_EQ(of(many).notes.size(), 2U);
}

TEST(HostVariables, AreSetUntilAnEmptyLine) {
  const testing::ScopedVariable threads("OMP_NUM_THREADS", "1"), level("LOGLEVEL", "INFO"),
      home("HF_HOME", "/own");
  EXPECT_TRUE(set_from({"OMP_NUM_THREADS=4", "LOGLEVEL=a=b", "", "HF_HOME=/x"}).ok());
  EXPECT_EQ(environment_variable("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(environment_variable("LOGLEVEL"), "a=b");
  EXPECT_EQ(environment_variable("HF_HOME"), "/own");
}

TEST(HostVariables, RefuseOtherLines) {
  const std::string path = environment_variable("PATH");
  for (const std::vector<std::string>& lines : std::vector<std::vector<std::string>>{
           {}, {"OMP_NUM_THREADS=4"}, {"OMP_NUM_THREADS"}, {"PATH=/evil", ""}, {"=", ""}}) {
    const testing::ScopedVariable threads("OMP_NUM_THREADS", "1");
    const Status status = set_from(lines);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ExitCode::kUsage);
  }
  EXPECT_EQ(environment_variable("PATH"), path);
  const testing::ScopedVariable level("LOGLEVEL", "INFO");
  EXPECT_FALSE(set_from(std::vector<std::string>(kMaxVariableBytes, "LOGLEVEL=INFO")).ok());
}

}  // namespace
}  // namespace tilewright::elastic
