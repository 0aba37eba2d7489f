#include "worker/elastic/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Host> parse(const std::string& text) {
  return parse_hostfile(text, "hosts").or_throw();
}

std::string hostfile_refusal(const std::string& text) {
  const auto hosts = parse_hostfile(text, "hosts");
  if (hosts.ok()) return "";
  EXPECT_EQ(hosts.error().code, ExitCode::kUsage);
  return hosts.error().message;
}

TEST(Hostfile, ReadsTheFormsOfOpenMpiAndHydra) {
  EXPECT_THAT(parse("# cluster\nlocalhost slots=2\n\n  node1\tslots=2 max_slots=4  # first\r\n"),
              ElementsAre(Host{"localhost", 2}, Host{"node1", 2}));
  EXPECT_THAT(parse("localhost:2\nnode1:2"), ElementsAre(Host{"localhost", 2}, Host{"node1", 2}));
  EXPECT_THAT(
      parse("node1\nuser@node-2.example\n10.0.0.3\n"),
      ElementsAre(Host{"node1", {}}, Host{"user@node-2.example", {}}, Host{"10.0.0.3", {}}));
  EXPECT_THAT(parse("fd00::1\n[fd00::2]:4\n[fd00::3]"),
              ElementsAre(Host{"fd00::1", {}}, Host{"fd00::2", 4}, Host{"fd00::3", {}}));
}

TEST(Hostfile, AddsTheSlotsOfAHostThatIsListedAgain) {
  EXPECT_THAT(parse("a\nb\na\n"), ElementsAre(Host{"a", 2}, Host{"b", {}}));
  EXPECT_THAT(parse("a slots=2\na slots=3"), ElementsAre(Host{"a", 5}));
}

TEST(Hostfile, NamesABadLine) {
  EXPECT_EQ(hostfile_refusal("a\nb slots=x\n"),
            "hosts:2: found \"b slots=x\", expected a line \"host\", \"host slots=N\" or "
            "\"host:N\"");
  for (const char* bad :
       {"a slots", "a slots=0", "a slots=-1", "a:0", "a:x", "a:", "-oProxyCommand=x", "a b",
        "a:2 slots=2", "a cpus=2", ":2", "[]:2", "a slots=99999", "a\x01"})
    EXPECT_THAT(hostfile_refusal(bad), HasSubstr("hosts:1: found \"")) << bad;
  EXPECT_THAT(hostfile_refusal("# nothing\n"), HasSubstr("hosts: found no host"));
}

TEST(Hostfile, RefusesAFileThatCannotBeRead) {
  const testing::TemporaryDirectory folder;
  EXPECT_THAT(read_hostfile(folder.path() / "none").error().message, HasSubstr("No such file"));
  std::ofstream(folder.path() / "large") << std::string(2 << 20, 'a');
  EXPECT_THAT(read_hostfile(folder.path() / "large").error().message,
              HasSubstr("found more than 1048576 bytes"));
  std::ofstream(folder.path() / "hosts") << "a\n";
  EXPECT_THAT(read_hostfile(folder.path() / "hosts").or_throw(), ElementsAre(Host{"a", {}}));
}

TEST(Hostfile, FindsTheSlotsOfAllHosts) {
  EXPECT_EQ(common_slots(parse("a\nb")).or_throw(), std::nullopt);
  EXPECT_EQ(common_slots(parse("a:2\nb:2")).or_throw(), 2);
  EXPECT_THAT(common_slots(parse("a:2\nb:4")).error().message,
              HasSubstr("the hosts a and b have 2 and 4 slots"));
  EXPECT_FALSE(common_slots(parse("a:2\nb")).ok());
}

}  // namespace
}  // namespace tilewright::elastic
