// Command lines for another host.
#include "worker/elastic/remote_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright::elastic {
namespace {

using ::testing::HasSubstr;

TEST(RemoteHost, PassesTheNameToSshUnchangedAndRunsInTheDirectory) {
  const testing::TemporaryDirectory folder;
  const auto ssh = folder.path() / "ssh";
  // Prints its arguments, and runs the last one as the remote shell would.
  std::ofstream(ssh)
      << "#!/bin/sh\nfor last; do echo \"<$last>\"; done\nexec /bin/sh -c \"$last\"\n";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  const auto directory = folder.path() / "a directory";
  std::filesystem::create_directory(directory);
  const RemoteCommand what{"/bin/echo", {"ran", "it's"}, directory};
  const ChildCommand command = over_ssh(ssh, "my-alias", what);
  testing::RunningProgram program(command.program, command.arguments, folder.path());
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("<BatchMode=yes>\n"));
  EXPECT_THAT(program.output(), HasSubstr("<-->\n<my-alias>\n"));
  EXPECT_TRUE(program.output().ends_with("\nran it's\n")) << program.output();
}

TEST(RemoteHost, DescribesWhatDidNotStart) {
  const RemoteCommand what{"/opt/tilewright-worker", {}, {}};
  EXPECT_EQ(describe_failed_start(what, 255, "ssh: connect to host b port 22: No route to host"),
            "cannot be reached: ssh: connect to host b port 22: No route to host");
  EXPECT_EQ(describe_failed_start(what, 127, ""),
            "cannot run /opt/tilewright-worker, expected the same program at the same path on all "
            "hosts");
  EXPECT_EQ(describe_failed_start(what, 2, "no key"),
            "the program did not start (exit code 2): no key");
}

TEST(RemoteHost, ReadsTheAddressFromTheConfigurationOfSsh) {
  const testing::TemporaryDirectory folder;
  const auto ssh = find_program("ssh", "/usr/bin:/bin");
  if (!ssh) {
    if (testing::prerequisites_required()) FAIL() << "needs ssh";
    GTEST_SKIP() << "needs ssh";
  }
  std::ofstream(folder.path() / "config") << "Host alias\n  HostName 10.1.2.3\n";
  const auto wrapper = folder.path() / "ssh";
  std::ofstream(wrapper) << "#!/bin/sh\nexec " << ssh->string() << " -F "
                         << (folder.path() / "config").string() << " \"$@\"\n";
  std::filesystem::permissions(wrapper, std::filesystem::perms::owner_all);
  EXPECT_EQ(ssh_host_name(wrapper, "alias").or_throw(), "10.1.2.3");
  EXPECT_EQ(ssh_host_name(wrapper, "10.9.9.9").or_throw(), "10.9.9.9");
  EXPECT_FALSE(ssh_host_name("/bin/false", "alias").ok());
}

}  // namespace
}  // namespace tilewright::elastic
