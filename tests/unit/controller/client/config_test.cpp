// Tests of load_config() with valid and invalid kubeconfigs and service account files.
#include "controller/client/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kKubeconfig = R"(apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: one
  cluster:
    server: https://one.example:6443/
    certificate-authority: ca.crt
    tls-server-name: kubernetes
contexts:
- name: dev
  context: {cluster: one, user: me, namespace: jobs}
- name: other
  context: {cluster: one, user: certified}
users:
- name: me
  user:
    token: s3cr3t-token
- name: certified
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
)";

class ConfigTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    fs::path path = directory.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  std::string replaced(const std::string& from, const std::string& to) {
    std::string text = kKubeconfig;
    text.replace(text.find(from), from.size(), to);
    return text;
  }
  // The error message for an invalid kubeconfig.
  std::string error_of(const std::string& text) {
    sources.kubeconfig = write("config", text);
    const auto config = load_config(sources);
    if (config.ok()) return "accepted";
    EXPECT_EQ(config.error().code, ExitCode::kUsage);
    return config.error().message;
  }
  // As in a pod, whose service account has files in `directory`.
  void in_pod(const std::string& service_host, const std::string& token) {
    sources.service_host = service_host;
    sources.service_port = "443";
    sources.service_account = directory.path();
    write("token", token);
  }
  testing::TemporaryDirectory directory;
  ConfigSources sources;
};

TEST_F(ConfigTest, ReadsAKubeconfig) {
  sources.kubeconfig = write("config", kKubeconfig);
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://one.example:6443");
  EXPECT_EQ(config->tls.authorities.file, directory.path() / "ca.crt")
      << "relative to the kubeconfig";
  EXPECT_EQ(config->tls.server_name, "kubernetes");
  EXPECT_TRUE(config->tls.verify);
  EXPECT_EQ(config->default_namespace, "jobs");
  EXPECT_EQ(*config->credentials->token(net::within(std::chrono::seconds(1))), "s3cr3t-token");
}

TEST_F(ConfigTest, UsesTheGivenContext) {
  sources.kubeconfig = write("config", kKubeconfig);
  sources.context = "other";
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->tls.certificate.text, "CERT");
  EXPECT_EQ(config->tls.key.text, "KEY");
  EXPECT_EQ(config->default_namespace, "default");
}

TEST_F(ConfigTest, MergesTheFilesInTheKubeconfigVariable) {
  const fs::path first = write("a/config",
                               "current-context: mixed\ncontexts:\n- name: mixed\n"
                               "  context: {cluster: one, user: certified}\n"
                               "users:\n- name: certified\n  user: {token: first}\n");
  const fs::path second = write("b/config", kKubeconfig);
  sources.kubeconfig_list = first.string() + ":/not/there:" + second.string();
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(*config->credentials->token(net::within(std::chrono::seconds(1))), "first")
      << "the first of two entries with the same name wins";
  EXPECT_EQ(config->tls.authorities.file, directory.path() / "b" / "ca.crt");
}

TEST_F(ConfigTest, LooksForAContextInKubeconfigsOnly) {
  in_pod("10.0.0.1", "of-the-pod");
  write("ca.crt", "CERT");
  ASSERT_EQ(load_config(sources)->source, "the pod's service account");
  sources.context = "other";
  const auto missing = load_config(sources);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message,
            "found no kubeconfig for the context other: KUBECONFIG is not set, .kube/config does "
            "not exist");
  sources.home = directory.path();
  write(".kube/config", kKubeconfig);
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://one.example:6443");
}

TEST_F(ConfigTest, SkipsEmptyFilesInTheKubeconfigVariable) {
  const fs::path empty = write("empty", "");
  const fs::path comment = write("comment", "# nothing yet\n");
  const fs::path full = write("config", kKubeconfig);
  sources.kubeconfig_list = empty.string() + ":" + comment.string() + ":" + full.string();
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://one.example:6443");
  EXPECT_THAT(error_of(""), HasSubstr("no current-context"));
}

// Tools that add a context for each cluster write large files.
TEST_F(ConfigTest, ReadsALargeKubeconfig) {
  std::string text = kKubeconfig;
  const std::string data(2000, 'A');
  for (int i = 0; text.size() < (6U << 20); ++i) {
    text += fmt::format("- name: user-{}\n  user: {{client-key-data: {}}}\n", i, data);
  }
  sources.kubeconfig = write("config", text);
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
}

TEST_F(ConfigTest, ErrorsNameFileLineAndField) {
  EXPECT_THAT(error_of(replaced("cluster: one, user: me", "cluster: two, user: me")),
              AllOf(HasSubstr("config"), HasSubstr("no entry named two under clusters")));
  EXPECT_THAT(error_of(replaced("current-context: dev", "current-context: prod")),
              HasSubstr("no entry named prod under contexts"));
  EXPECT_THAT(error_of(replaced("current-context: dev\n", "")), HasSubstr("no current-context"));
  EXPECT_THAT(error_of(replaced("https://one", "one")),
              AllOf(HasSubstr("config:7: clusters[0].cluster.server"), HasSubstr("https://")));
  EXPECT_THAT(error_of(replaced("https://one", "http://one")), HasSubstr("expected https"));
  EXPECT_THAT(error_of(replaced("https://one.example", "https://[::1]")), HasSubstr("IPv6"));
  EXPECT_THAT(error_of(replaced("tls-server-name: kubernetes", "insecure-skip-tls-verify: true")),
              HasSubstr("config:9: clusters[0].cluster.insecure-skip-tls-verify"));
  EXPECT_THAT(error_of(replaced("tls-server-name: kubernetes", "proxy-url: http://p")),
              HasSubstr("proxy-url"));
  EXPECT_THAT(error_of("- a\n"), HasSubstr("is not a kubeconfig"));
  EXPECT_THAT(error_of("a: [\n"), HasSubstr("config"));
}

TEST_F(ConfigTest, NeverPrintsSecretsInErrors) {
  sources.context = "dev";
  for (const char* user : {"token: 123456789", "token: [123456789]", "token: \"123456789 \"",
                           "token: \"1234\\n56789\"", "password: 123456789", "exec: 123456789",
                           "auth-provider: {config: 123456789}", "client-key-data: 123456789",
                           "{client-certificate-data: QQ==, client-key-data: 123456789}",
                           "client-key-data: [123456789]"}) {
    EXPECT_THAT(error_of(replaced("token: s3cr3t-token", user)),
                AllOf(HasSubstr("config:"), HasSubstr("users[0].user"), Not(HasSubstr("56789"))))
        << user;
  }
}

TEST_F(ConfigTest, SkipsVerificationOnlyIfAllowed) {
  sources.allow_insecure = true;
  sources.kubeconfig =
      write("config", replaced("tls-server-name: kubernetes", "insecure-skip-tls-verify: true"));
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config->tls.verify);
}

TEST_F(ConfigTest, PrefersATokenFileToAToken) {
  const auto token = [&] {
    sources.kubeconfig = write(
        "config", replaced("token: s3cr3t-token", "token: s3cr3t-token\n    tokenFile: renewed"));
    return *load_config(sources).or_throw().credentials->token(net::within(seconds(1)));
  };
  EXPECT_EQ(token(), "s3cr3t-token") << "the file does not exist";
  write("renewed", "from-the-file");
  EXPECT_EQ(token(), "from-the-file");
}

// A plugin that stores what it is told.
class PluginInfoTest : public ConfigTest {
 protected:
  PluginInfoTest() {
    const fs::path plugin = write("plugin", fmt::format(R"(#!/bin/sh
printf %s "$KUBERNETES_EXEC_INFO" > {}
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
echo '"status":{{"token":"abc"}}}}'
)",
                                                        (directory.path() / "info").string()));
    fs::permissions(plugin, fs::perms::owner_all);
  }
  // With the line certificate-authority of the cluster replaced by `line`.
  std::string with_plugin(const std::string& line) {
    std::string text = replaced("token: s3cr3t-token",
                                "exec: {apiVersion: client.authentication.k8s.io/v1, "
                                "command: ./plugin, provideClusterInfo: true}");
    constexpr std::string_view kLine = "certificate-authority: ca.crt";
    return text.replace(text.find(kLine), kLine.size(), line);
  }
  nlohmann::json cluster_info(const std::string& line) {
    sources.kubeconfig = write("config", with_plugin(line));
    const auto config = load_config(sources);
    if (!config) return config.error().message;
    EXPECT_EQ(*config->credentials->token(net::within(seconds(60))), "abc");
    std::ifstream info(directory.path() / "info");
    return nlohmann::json::parse(info)["spec"]["cluster"];
  }
};

// "Q0E=" is the base64 of "CA".
TEST_F(PluginInfoTest, DescribesTheClusterAsKubectlDoes) {
  nlohmann::json expected = {{"server", "https://one.example:6443"},
                             {"tls-server-name", "kubernetes"},
                             {"certificate-authority-data", "Q0E="}};
  write("ca.crt", "CA");
  EXPECT_EQ(cluster_info("certificate-authority: ca.crt"), expected);
  EXPECT_EQ(cluster_info("certificate-authority-data: Q0E="), expected);
  EXPECT_EQ(cluster_info(R"(certificate-authority: ca.crt
    extensions:
    - {name: example.org/other, extension: {audience: other}}
    - {name: client.authentication.k8s.io/exec, extension: {audience: one}})")["config"],
            (nlohmann::json{{"audience", "one"}}));
  expected.erase("certificate-authority-data");
  expected["insecure-skip-tls-verify"] = true;
  sources.allow_insecure = true;
  EXPECT_EQ(cluster_info("insecure-skip-tls-verify: true"), expected);
}

TEST_F(PluginInfoTest, NamesACaFileThatIsMissing) {
  EXPECT_THAT(error_of(with_plugin("certificate-authority: missing.crt")),
              HasSubstr("missing.crt"));
}

TEST_F(ConfigTest, ReadsAPodsServiceAccount) {
  in_pod("10.96.0.1", "first\n");
  write("namespace", "jobs");
  const auto config = load_config(sources);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://10.96.0.1:443");
  EXPECT_EQ(config->tls.authorities.file, directory.path() / "ca.crt");
  EXPECT_EQ(config->default_namespace, "jobs");
  EXPECT_EQ(*config->credentials->token(net::within(std::chrono::seconds(1))), "first");
  fs::remove(directory.path() / "token");
  EXPECT_THAT(load_config(sources).error().message, HasSubstr("token"));
}

TEST_F(ConfigTest, UsesTheServiceNameForAnIpv6ApiServer) {
  in_pod("fd00::1", "t");
  EXPECT_EQ(load_config(sources)->server, "https://kubernetes.default.svc:443");
}

TEST_F(ConfigTest, TriesSourcesInOrder) {
  sources.home = directory.path();
  EXPECT_THAT(load_config(sources).error().message, HasSubstr("found no cluster"));
  write(".kube/config", kKubeconfig);
  EXPECT_EQ(load_config(sources)->server, "https://one.example:6443");
  in_pod("10.0.0.1", "t");
  EXPECT_EQ(load_config(sources)->server, "https://10.0.0.1:443")
      << "service account before ~/.kube/config";
  sources.kubeconfig_list = write("listed", replaced("one.example", "two.example"));
  EXPECT_EQ(load_config(sources)->server, "https://two.example:6443");
  sources.kubeconfig = write("flag", replaced("one.example", "three.example"));
  EXPECT_EQ(load_config(sources)->server, "https://three.example:6443");
  sources.kubeconfig = "/not/there";
  EXPECT_THAT(load_config(sources).error().message, HasSubstr("/not/there"));
}

}  // namespace
}  // namespace tilewright::kube
