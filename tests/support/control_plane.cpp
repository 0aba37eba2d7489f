#include "tests/support/control_plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>

#include "tests/support/kubeconfig.h"
#include "tests/support/paths.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

// Six seconds on an idle machine, much longer next to compilers or under a sanitizer.
constexpr std::chrono::seconds kStartTimeout{180};
// Poll interval of a starting API server, which sends no readiness notification.
constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::seconds kStopTimeout{10};

bool is_free(int port) {
  const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;  // like Go's servers: ignores connections in TIME_WAIT
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Searches below the ephemeral port range, so that no client connection takes a port while the API
// server is down. Concurrent test programs start at different ports.
std::vector<int> find_ports(std::size_t wanted) {
  constexpr int kFirst = 20000;
  constexpr int kCount = 10000;  // up to the node ports of services
  const int start = static_cast<int>(static_cast<long>(getpid()) * 7 % kCount);
  std::vector<int> ports;
  for (int i = 0; i < kCount && ports.size() < wanted; ++i) {
    const int port = kFirst + (start + i) % kCount;
    if (is_free(port)) ports.push_back(port);
  }
  if (ports.size() == wanted) return ports;
  throw std::runtime_error("no port between 20000 and 30000 is free on 127.0.0.1");
}

std::filesystem::path programs_folder() {
  ChildCommand command;
  command.program = source_dir() / ".ci/control-plane";
  command.arguments = {"folder"};
  command.environment = environment_with_overrides({});
  const CommandResult outcome = run_command(command);
  if (outcome.exit_code != 0) throw std::runtime_error(outcome.output);
  return outcome.output.substr(0, outcome.output.find('\n'));
}

// Quotes for the shell. None of the paths and addresses contains a quote.
std::string quoted(const std::string& text) { return fmt::format("'{}'", text); }

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path);
  out << content;
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace

std::string ControlPlane::missing() { return missing({"etcd", "kube-apiserver", "kubectl"}); }

std::string ControlPlane::missing(const std::vector<std::string>& programs) {
  const std::filesystem::path folder = programs_folder();
  for (const std::string& program : programs) {
    if (access((folder / program).c_str(), X_OK) == 0) continue;
    return fmt::format(
        "{} is missing: run `.ci/control-plane build {}` once, or set "
        "KUBEBUILDER_ASSETS to a folder that has it",
        (folder / program).string(), fmt::join(programs, " "));
  }
  return "";
}

ControlPlane::ControlPlane(ControlPlaneOptions options) : options_(std::move(options)) {
  if (const std::string reason = missing(); !reason.empty()) throw std::runtime_error(reason);
  programs_ = programs_folder();
  std::string pattern = std::filesystem::temp_directory_path() / "tilewright-cluster-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  folder_ = pattern;

  const std::vector<int> ports = find_ports(3);
  etcd_port_ = ports[0];
  etcd_peer_port_ = ports[1];
  api_port_ = ports[2];
  url_ = fmt::format("https://127.0.0.1:{}", api_port_);
  authority_ = std::make_unique<CertificateAuthority>(folder_);
  authority_->issue_server("server", {"IP:127.0.0.1", "DNS:localhost"});
  admin_certificate_ = authority_->issue_client("admin", {"system:masters"});
  write_signing_keys(folder_ / "service-accounts.key", folder_ / "service-accounts.pub");
  std::string tokens;
  for (const ApiUser& user : options_.users) {
    tokens += fmt::format("{},{},{}", user.token, user.name, user.name);
    if (!user.groups.empty()) tokens += fmt::format(",\"{}\"", fmt::join(user.groups, ","));
    tokens += "\n";
  }
  write_file(folder_ / "tokens.csv", tokens);
  kubeconfig_ = folder_ / "admin.kubeconfig";
  write_kubeconfig(kubeconfig_, url_, authority_->certificate(),
                   {{"client-certificate", admin_certificate_.certificate.string()},
                    {"client-key", admin_certificate_.key.string()}});
  admin_ = client({admin_certificate_, ""});

  start_etcd();
  start_api_server();
}

ControlPlane::~ControlPlane() {
  // The API server first, because it logs errors without etcd. SIGKILL after a timeout.
  for (std::optional<ChildProcess>* child : {&api_server_, &etcd_}) {
    if (!child->has_value()) continue;
    (*child)->signal_group(SIGTERM);
    pollfd polled{(*child)->exit_fd(), POLLIN, 0};
    poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kStopTimeout).count()));
    child->reset();
  }
  std::error_code ignored;
  if (!keep_folder_) std::filesystem::remove_all(folder_, ignored);
}

ChildProcess ControlPlane::start(const std::string& program,
                                 const std::vector<std::string>& arguments) const {
  std::string line = fmt::format("exec {}", quoted(programs_ / program));
  for (const std::string& argument : arguments) line += fmt::format(" {}", quoted(argument));
  line += fmt::format(" >>{} 2>&1", quoted(folder_ / (program + ".log")));
  ChildCommand command;
  command.program = "/bin/sh";
  command.arguments = {"-c", line};
  command.environment = environment_with_overrides({});
  command.working_directory = folder_;
  Result<ChildProcess> child = ChildProcess::start(command);
  if (!child.ok()) throw std::runtime_error(child.error().message);
  return std::move(child).value();
}

void ControlPlane::start_etcd() {
  const std::string client = fmt::format("http://127.0.0.1:{}", etcd_port_);
  const std::string peer = fmt::format("http://127.0.0.1:{}", etcd_peer_port_);
  etcd_.emplace(
      start("etcd", {"--data-dir=" + (folder_ / "etcd").string(), "--name=test",
                     "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
                     "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
                     "--initial-cluster=test=" + peer, "--unsafe-no-fsync"}));
}

void ControlPlane::start_api_server() {
  const auto file = [this](const char* name) { return (folder_ / name).string(); };
  std::vector<std::string> flags = {
      fmt::format("--etcd-servers=http://127.0.0.1:{}", etcd_port_),
      "--bind-address=127.0.0.1",
      fmt::format("--secure-port={}", api_port_),
      "--tls-cert-file=" + file("server.crt"),
      "--tls-private-key-file=" + file("server.key"),
      "--client-ca-file=" + file("ca.crt"),
      "--token-auth-file=" + file("tokens.csv"),
      "--authorization-mode=RBAC",
      "--service-account-issuer=https://kubernetes.default.svc",
      "--service-account-key-file=" + file("service-accounts.pub"),
      "--service-account-signing-key-file=" + file("service-accounts.key"),
      "--service-cluster-ip-range=10.0.0.0/24",
      // No controller creates service accounts here, so pods would be rejected.
      "--disable-admission-plugins=ServiceAccount",
      "--allow-privileged=true",  // as in a real cluster: left to Pod Security
      // The endpoint reconciler would publish a loopback address, which is rejected.
      "--endpoint-reconciler-type=none",
      "--profiling=false",
  };
  flags.insert(flags.end(), options_.api_server_flags.begin(), options_.api_server_flags.end());
  api_server_.reset();
  api_server_.emplace(start("kube-apiserver", flags));
  await("/readyz");
  await("/api/v1/namespaces/default");  // created asynchronously after /readyz
  for (const Grant& grant : grants_) wait_until_granted(grant);
}

void ControlPlane::kill_api_server() { api_server_.reset(); }

void ControlPlane::await(const std::string& path) {
  await("kube-apiserver does not become ready", [&] {
    const HttpResponse got = admin_->get(path);
    return std::pair(got.ok(), got.body);
  });
}

void ControlPlane::await(const std::string& complaint,
                         const std::function<std::pair<bool, std::string>()>& check) {
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (true) {
    const auto [there, seen] = check();
    if (there) return;
    check_running();
    if (std::chrono::steady_clock::now() > deadline) fail(fmt::format("{}: {}", complaint, seen));
    pollfd polled{api_server_->exit_fd(), POLLIN, 0};
    poll(&polled, 1, static_cast<int>(kPollInterval.count()));
  }
}

// The authorizer reads rules from a cache.
void ControlPlane::wait_until_granted(const Grant& grant) {
  for (const json& rule : grant.rules) {
    const json review = {{"apiVersion", "authorization.k8s.io/v1"},
                         {"kind", "SubjectAccessReview"},
                         {"spec",
                          {{"user", grant.user},
                           {"resourceAttributes",
                            {{"group", rule.at("apiGroups").at(0)},
                             {"resource", rule.at("resources").at(0)},
                             {"verb", rule.at("verbs").at(0)}}}}}};
    await(fmt::format("the rights of {} do not come into force", grant.user), [&] {
      const HttpResponse judged =
          admin_->post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review);
      const bool allowed =
          judged.ok() && judged.json().value(json::json_pointer("/status/allowed"), false);
      return std::pair(allowed, judged.body);
    });
  }
}

void ControlPlane::check_running() {
  if (const auto code = etcd_->poll_exit()) fail(fmt::format("etcd has ended with {}", *code));
  if (const auto code = api_server_->poll_exit()) {
    fail(fmt::format("kube-apiserver has ended with {}", *code));
  }
}

void ControlPlane::fail(const std::string& what) {
  keep_folder_ = true;
  throw std::runtime_error(fmt::format("{}; see {}/*.log", what, folder_.string()));
}

std::unique_ptr<HttpsClient> ControlPlane::client(Credentials credentials) const {
  return std::make_unique<HttpsClient>(url_, authority_->certificate(), std::move(credentials));
}

void ControlPlane::grant(const std::string& user, const json& rules) {
  const std::string api = "/apis/rbac.authorization.k8s.io/v1";
  const json role = {{"apiVersion", "rbac.authorization.k8s.io/v1"},
                     {"kind", "ClusterRole"},
                     {"metadata", {{"name", "test-" + user}}},
                     {"rules", rules}};
  const json binding = {
      {"apiVersion", "rbac.authorization.k8s.io/v1"},
      {"kind", "ClusterRoleBinding"},
      {"metadata", {{"name", "test-" + user}}},
      {"roleRef",
       {{"apiGroup", "rbac.authorization.k8s.io"},
        {"kind", "ClusterRole"},
        {"name", "test-" + user}}},
      {"subjects",
       {{{"kind", "User"}, {"name", user}, {"apiGroup", "rbac.authorization.k8s.io"}}}}};
  for (const auto& [path, object] :
       {std::pair{"/clusterroles", role}, std::pair{"/clusterrolebindings", binding}}) {
    const HttpResponse made = admin_->post(api + path, object);
    if (!made.ok()) fail("no rights for " + user + ": " + made.message());
  }
  wait_until_granted(grants_.emplace_back(Grant{user, rules}));
}

CommandResult ControlPlane::wait_for_crd(const std::string& name) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    // kubectl fails at once if the definition has no conditions yet.
    CommandResult waited =
        kubectl({"wait", "crd/" + name, "--for=condition=Established", "--timeout=60s"});
    if (waited.exit_code == 0 || waited.error.find("<nil>") == std::string::npos ||
        std::chrono::steady_clock::now() >= deadline) {
      return waited;
    }
  }
}

CommandResult ControlPlane::kubectl(const std::vector<std::string>& arguments) const {
  ChildCommand command;
  command.program = programs_ / "kubectl";
  command.arguments = arguments;
  command.environment =
      environment_with_overrides({{"KUBECONFIG", kubeconfig_.string()},
                                  // kubectl's discovery cache.
                                  {"KUBECACHEDIR", (folder_ / "kubectl").string()}});
  command.separate_error = true;  // keeps warnings out of the JSON
  return run_command(command);
}

std::filesystem::path ControlPlane::kubeconfig_for(const ApiUser& user) {
  std::filesystem::path path = folder_ / (user.name + ".kubeconfig");
  write_kubeconfig(path, url_, authority_->certificate(), {{"token", user.token}});
  return path;
}

}  // namespace tilewright::testing
