// Processes that share the CPUs of this one.
#include "common/host/sibling_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/common/host/saved_topologies.h"

namespace tilewright::host {
namespace {

using ::testing::ElementsAre;
using namespace std::string_literals;

TEST(SiblingProcesses, AreThoseOfTheProgramOnTheSameCpus) {
  const testing::TemporaryDirectory root;
  const auto add = [&](const std::string& pid, const std::string& program,
                       const std::string& arguments, const std::string& cpus) {
    const auto directory = root.path() / "proc" / pid;
    write_file(directory / "cmdline", arguments);
    write_file(directory / "status", "Name:\tx\nCpus_allowed_list:\t" + cpus + "\nPid:\t1\n");
    if (!program.empty()) std::filesystem::create_symlink(program, directory / "exe");
  };
  const std::string train = "tilewright-worker\0train\0--x\0"s;
  add("30", "/opt/tilewright-worker", "python\0train\0"s, "2-5");
  add("4", "/usr/bin/tilewright-worker", train, "0-7");
  add("5", "", "/usr/bin/tilewright-worker\0train\0"s, "1");  // of another user
  add("6", "/usr/bin/tilewright-worker", "tilewright-worker\0agent\0"s, "0-7");
  add("7", "/usr/bin/tilewright-worker", train, "4-7");
  add("8", "/usr/bin/vim", "tilewright-worker\0train\0"s, "0-7");
  add("9", "/usr/bin/tilewright-worker", train, "0-7");  // this process
  add("10", "/usr/bin/tilewright-worker", train, "broken");
  add("11", "/usr/bin/tilewright-worker", "", "0-7");
  add("self", "/usr/bin/tilewright-worker", train, "0-7");
  write_file(root.path() / "proc/12", "");
  EXPECT_THAT(
      sibling_processes("tilewright-worker", {"train", "eval"}, {0, 1, 2, 3}, 9, root.path()),
      ElementsAre(SiblingProcess{4, {0, 1, 2, 3}}, SiblingProcess{5, {1}},
                  SiblingProcess{30, {2, 3}}));
  EXPECT_THAT(sibling_processes("tilewright-worker", {"train"}, {0}, 9, root.path() / "missing"),
              ElementsAre());
}

}  // namespace
}  // namespace tilewright::host
