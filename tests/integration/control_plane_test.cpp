// Tests of the ControlPlane harness: users, API server restarts, cleanup.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/support/cluster_test.h"
#include "tests/support/running_program.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

class ControlPlaneTest : public ClusterTest {};

json config_map(const char* name) {
  return {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}};
}

constexpr const char* kConfigMaps = "/api/v1/namespaces/default/configmaps";

TEST_F(ControlPlaneTest, AuthenticatesAndAuthorizesUsers) {
  ControlPlane plane({.users = {{"reader", "a-token", {"people"}}}, .api_server_flags = {}});
  const auto reader = plane.client({{}, "a-token"});
  EXPECT_EQ(plane.client({{}, "another-token"})->get(kConfigMaps).status, 401);
  EXPECT_EQ(reader->get(kConfigMaps).status, 403);
  plane.grant("reader",
              {{{"apiGroups", {""}}, {"resources", {"configmaps"}}, {"verbs", {"list"}}}});
  EXPECT_EQ(reader->get(kConfigMaps).status, 200);
  EXPECT_EQ(reader->post(kConfigMaps, config_map("mine")).status, 403);
  const auto somebody = plane.client({plane.issue_client("somebody", {"people"}), ""});
  EXPECT_THAT(somebody->get(kConfigMaps).message(),
              ::testing::HasSubstr("User \"somebody\" cannot list resource \"configmaps\""));

  // Acknowledged writes survive a restart of the API server, on the same address.
  ASSERT_EQ(plane.admin().post(kConfigMaps, config_map("kept")).status, 201);
  plane.kill_api_server();
  EXPECT_EQ(plane.admin().get(kConfigMaps).status, 0);
  plane.start_api_server();
  EXPECT_EQ(plane.admin().get(std::string(kConfigMaps) + "/kept").status, 200);
  EXPECT_EQ(reader->get(kConfigMaps).status, 200);
}

TEST_F(ControlPlaneTest, ServesKubectl) {
  const CommandResult version = control_plane().kubectl({"version", "-o", "json"});
  ASSERT_EQ(version.exit_code, 0) << version.error;
  const json versions = json::parse(version.output);
  EXPECT_EQ(versions["serverVersion"]["gitVersion"], versions["clientVersion"]["gitVersion"]);
}

// A test that crashes or is killed must not leave servers behind.
TEST_F(ControlPlaneTest, DiesWithTheProgramThatStartedIt) {
  struct ServerInfo {
    pid_t etcd, api_server;
    char folder[256];
  } info{};
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ControlPlane plane;
    info.etcd = plane.etcd_pid();
    info.api_server = plane.api_server_pid();
    plane.folder().string().copy(info.folder, sizeof(info.folder) - 1);
    [[maybe_unused]] const auto written = write(ends[1], &info, sizeof(info));
    for (;;) pause();
  }
  close(ends[1]);
  ASSERT_EQ(read(ends[0], &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
  close(ends[0]);
  const ProcessExitWatch etcd(info.etcd);
  const ProcessExitWatch api_server(info.api_server);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(etcd.wait_for_exit());
  EXPECT_TRUE(api_server.wait_for_exit());
  std::filesystem::remove_all(info.folder);
}

}  // namespace
}  // namespace tilewright::testing
