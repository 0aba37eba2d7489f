// Tests of token files and of exec plugins that succeed, fail, hang or write invalid output.
#include "controller/client/credentials.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "common/json/timestamp.h"
#include "controller/client/exec_plugin.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CredentialsTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    fs::path path = directory.path() / name;
    std::ofstream(path) << text;
    return path;
  }
  // A plugin that runs the shell script `body`.
  ExecPlugin plugin(const std::string& body) {
    ExecPlugin made;
    made.program = write("plugin", "#!/bin/sh\n" + body + "\n");
    fs::permissions(made.program, fs::perms::owner_all);
    made.where = "config:3: users[0].user.exec";
    return made;
  }
  static std::string answer(const std::string& status) {
    return R"(echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",)"
           R"("status":)" +
           status + "}'";
  }
  std::size_t runs() {
    std::ifstream in(directory.path() / "runs");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }
  std::string count() { return fmt::format("echo >> {}\n", (directory.path() / "runs").string()); }

  testing::TemporaryDirectory directory;
};

TEST_F(CredentialsTest, RereadATokenFileAfterTheRefreshInterval) {
  const fs::path path = write("token", "first\n");
  const auto credentials = token_file(path, Duration::zero()).or_throw();
  EXPECT_EQ(*credentials->token(soon()), "first");
  write("token", "second\n");
  EXPECT_EQ(*credentials->token(soon()), "second");
  fs::remove(path);
  EXPECT_EQ(*credentials->token(soon()), "second") << "while the file is being replaced";
}

TEST_F(CredentialsTest, RereadATokenFileWhenTheTokenIsRejected) {
  const fs::path path = write("token", "first");
  const auto credentials = token_file(path).or_throw();
  write("token", "second");
  EXPECT_EQ(*credentials->token(soon()), "first");
  credentials->invalidate();
  EXPECT_EQ(*credentials->token(soon()), "second");
}

TEST_F(CredentialsTest, RejectTokensThatAreInvalidInAHeader) {
  for (const char* text : {"", "\n", "a b", "a\r\nX-Evil: 1", "a\x01", "\xc3\xa4"}) {
    const auto credentials = token_file(write("token", text));
    ASSERT_FALSE(credentials.ok()) << text;
    EXPECT_THAT(credentials.error().message, AllOf(HasSubstr("token"), Not(HasSubstr("Evil"))));
  }
}

TEST_F(CredentialsTest, AreReadAgainAfterA401) {
  const fs::path path = write("token", "old");
  ScriptedServer server([&](auto& connection, const auto& request) {
    if (request.headers.at("authorization") == "Bearer new") return connection.answer(200, "{}");
    write("token", "new");
    connection.answer(401, status_text(401, "Unauthorized"));
  });
  ClusterConfig config = config_for(server);
  config.credentials = token_file(path).or_throw();
  const auto client = Client::make(config, no_retry_delay()).or_throw();
  EXPECT_TRUE(client->get(resource::pods(), "ns", "a", soon()).ok());
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST_F(CredentialsTest, AreRetriedOnlyOnce) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.answer(401, status_text(401, "Unauthorized"));
  });
  ClusterConfig config = config_for(server);
  config.credentials = static_token("wrong-token", "test").or_throw();
  const auto client = Client::make(config, no_retry_delay()).or_throw();
  const auto object = client->get(resource::pods(), "ns", "a", soon());
  ASSERT_TRUE(object.is(ErrorKind::kUnauthorized));
  EXPECT_THAT(object.error().sentence(), Not(HasSubstr("wrong-token")));
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST_F(CredentialsTest, RunAPluginOnceForConcurrentRequests) {
  const auto credentials = exec_credentials(plugin(count() + answer(R"({"token":"abc"})")));
  EXPECT_EQ(*credentials->token(soon()), "abc");
  EXPECT_EQ(*credentials->token(soon()), "abc");
  EXPECT_EQ(runs(), 1U);
  credentials->invalidate();
  EXPECT_EQ(*credentials->token(soon()), "abc");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(CredentialsTest, RunAPluginAgainWhenItsCredentialExpired) {
  const auto credentials = exec_credentials(
      plugin(count() + answer(R"({"token":"abc","expirationTimestamp":"2001-01-01T00:00:00Z"})")));
  EXPECT_TRUE(credentials->token(soon()).ok());
  EXPECT_TRUE(credentials->token(soon()).ok());
  EXPECT_EQ(runs(), 2U);
}

TEST_F(CredentialsTest, PassArgumentsAndEnvironmentToAPlugin) {
  ExecPlugin made = plugin(R"sh(informed=$(echo "$KUBERNETES_EXEC_INFO" | grep -c ExecCredential)
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
printf '"status":{"token":"%s-%s-%s"}}' "$1" "$EXTRA" "$informed")sh");
  made.arguments = {"$(no shell)"};
  made.environment["EXTRA"] = "extra";
  const auto credentials = exec_credentials(made);
  const auto token = credentials->token(soon());
  ASSERT_FALSE(token.ok()) << "the space of the argument must reach the token";
  EXPECT_THAT(token.error().message, HasSubstr("status.token"));
  made.arguments = {"$(no_shell)"};
  EXPECT_EQ(*exec_credentials(made)->token(soon()), "$(no_shell)-extra-1");
}

TEST_F(CredentialsTest, ReportWhyAPluginFailed) {
  const auto failure = [](ExecPlugin made) {
    return exec_credentials(std::move(made))->token(soon()).error().message;
  };
  EXPECT_THAT(failure(plugin("echo log in first >&2; exit 3")),
              AllOf(HasSubstr("config:3: users[0].user.exec"), HasSubstr("exited with code 3"),
                    HasSubstr("log in first")));
  EXPECT_THAT(failure(plugin("echo s3cr3t")),
              AllOf(HasSubstr("did not write a JSON object"), Not(HasSubstr("s3cr3t"))));
  ExecPlugin hangs = plugin("exec tail -f /dev/null");
  hangs.deadline = std::chrono::milliseconds(100);
  EXPECT_THAT(failure(hangs), HasSubstr("did not finish"));
}

TEST_F(CredentialsTest, StopAPluginWhenTheRequestIsCancelled) {
  const auto credentials = exec_credentials(plugin(count() + "exec tail -f /dev/null"));
  net::WakeUp cancel;
  auto token = std::async(std::launch::async,
                          [&] { return credentials->token(net::within(seconds(20), &cancel)); });
  cancel.signal();
  EXPECT_FALSE(token.get().ok());
}

TEST_F(CredentialsTest, HonourTheDeadlineWhileAnotherRequestRunsThePlugin) {
  const fs::path started = directory.path() / "started";
  ASSERT_EQ(mkfifo(started.c_str(), 0600), 0);
  const auto credentials =
      exec_credentials(plugin(fmt::format(": >{}; exec tail -f /dev/null", started.string())));
  net::WakeUp cancel;
  auto first = std::async(std::launch::async,
                          [&] { return credentials->token(net::within(seconds(20), &cancel)); });
  std::ifstream(started).get();  // opens when the plugin opens it
  const auto second = credentials->token(net::within(std::chrono::milliseconds(100)));
  EXPECT_THAT(second.error().message, HasSubstr("still running for another request"));
  cancel.signal();
  EXPECT_FALSE(first.get().ok());
}

TEST_F(CredentialsTest, RejectOutputThatIsNotAnExecCredential) {
  const ExecPlugin made = plugin("");
  const auto wrap = [](const std::string& status) {
    return R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":)" +
           status + "}";
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"),
        std::string(R"({"kind":"ExecCredential","apiVersion":"v2","status":{"token":"a"}})"),
        wrap("{}"), wrap("3"), wrap(R"({"token":""})"), wrap(R"({"clientKeyData":"k"})"),
        wrap(R"({"token":"a","expirationTimestamp":"soon"})"), wrap(R"({"token":"a b"})")}) {
    EXPECT_FALSE(parse_exec_credential(text, made).ok()) << text;
  }
  const auto both =
      parse_exec_credential(wrap(R"({"clientCertificateData":"c","clientKeyData":"k",)"
                                 R"("expirationTimestamp":"2030-01-01T00:00:00Z"})"),
                            made);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->certificate->key_pem, "k");
  EXPECT_EQ(to_rfc3339(*both->expires), "2030-01-01T00:00:00Z");
}

TEST_F(CredentialsTest, FindAPluginNextToTheKubeconfigOrInPath) {
  const fs::path program = plugin("").program;
  EXPECT_EQ(*resolve_command("./plugin", directory.path(), "", "w"), directory.path() / "./plugin");
  EXPECT_EQ(
      *resolve_command("plugin", "/", fmt::format("/not/there:{}", directory.path().string()), "w"),
      program);
  EXPECT_FALSE(resolve_command("plugin", directory.path(), "", "w").ok())
      << "not from the current directory";
  EXPECT_THAT(resolve_command("plugin", "/", "/bin", "w").error().message, HasSubstr("plugin"));
  EXPECT_FALSE(resolve_command("./other", directory.path(), "", "w").ok());
}

}  // namespace
}  // namespace tilewright::kube
