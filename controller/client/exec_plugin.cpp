#include "controller/client/exec_plugin.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "common/base/printable.h"
#include "common/contract/environment.h"
#include "common/json/members.h"
#include "common/json/timestamp.h"
#include "common/process/child_process.h"
#include "controller/api/decode.h"
#include "controller/client/tls.h"

namespace tilewright::kube {
namespace {

constexpr std::size_t kMaxOutputBytes = 1 << 20;
// A token that expires within this time is renewed, because the request itself takes time.
constexpr auto kExpiryMargin = std::chrono::seconds(10);
// How often a request that waits for a plugin run of another request checks for cancellation.
constexpr auto kCancelPollInterval = std::chrono::milliseconds(50);

Error plugin_error(const ExecPlugin& plugin, const std::string& what) {
  return {ExitCode::kUsage, fmt::format("{}: {} {}", plugin.where, plugin.program.string(), what)};
}

std::string exec_info(const ExecPlugin& plugin) {
  nlohmann::json spec = {{"interactive", false}};
  if (!plugin.cluster.is_null()) spec["cluster"] = plugin.cluster;
  return nlohmann::json{
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", spec}}
      .dump();
}

// The last line of the plugin's standard error, for the error message.
std::string last_line(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return excerpt(text.substr(text.rfind('\n') + 1), kLineExcerpt);  // npos + 1 is 0
}

Result<std::string> run(const ExecPlugin& plugin, const net::Wait& wait) {
  ChildCommand command;
  command.program = plugin.program;
  command.arguments = plugin.arguments;
  auto overrides = plugin.environment;
  overrides["KUBERNETES_EXEC_INFO"] = exec_info(plugin);
  overrides.try_emplace(env::kSslCertFile, system_ca_file());
  command.environment = environment_with_overrides(overrides);
  command.separate_error = true;
  auto child = ChildProcess::start(command);
  if (!child) return plugin_error(plugin, "failed to start: " + child.error().message);
  const MonotonicTime until = std::min(wait.deadline, monotonic_now() + plugin.deadline);
  std::string output, error_output;
  while (true) {
    std::array<pollfd, 4> fds = {{{child->output_fd(), POLLIN, 0},
                                  {child->error_fd(), POLLIN, 0},
                                  {child->exit_fd(), POLLIN, 0},
                                  {wait.cancel ? wait.cancel->fd() : -1, POLLIN, 0}}};
    poll(fds.data(), fds.size(), net::poll_timeout(until));
    if (fds[0].revents != 0) output += child->read_output();
    if (fds[1].revents != 0) error_output += child->read_error();
    if (output.size() > kMaxOutputBytes || error_output.size() > kMaxOutputBytes) {
      return plugin_error(plugin, "wrote more than 1 MiB");
    }
    if (wait.cancel && wait.cancel->signalled()) return plugin_error(plugin, "was cancelled");
    if (const auto code = child->poll_exit()) {
      for (std::string more; !(more = child->read_output()).empty();) output += more;
      for (std::string more; !(more = child->read_error()).empty();) error_output += more;
      if (*code == 0) return output;
      const std::string detail = last_line(error_output);
      return plugin_error(plugin, fmt::format("exited with code {}{}{}", *code,
                                              detail.empty() ? "" : ": ", detail));
    }
    if (monotonic_now() >= until) {
      return plugin_error(
          plugin, fmt::format("did not finish within {}", format_duration(plugin.deadline)));
    }
  }
}

class ExecCredentials : public Credentials {
 public:
  explicit ExecCredentials(ExecPlugin plugin) : plugin_(std::move(plugin)) {}

  Result<std::string> token(const net::Wait& wait) override {
    // Held while the plugin runs, so that concurrent requests share one run. Waiting requests keep
    // their own deadlines.
    std::unique_lock running(running_, std::defer_lock);
    while (
        !running.try_lock_until(std::min(wait.deadline, monotonic_now() + kCancelPollInterval))) {
      if (wait.cancel && wait.cancel->signalled()) return plugin_error(plugin_, "was cancelled");
      if (monotonic_now() >= wait.deadline) {
        return plugin_error(plugin_, "is still running for another request");
      }
    }
    {
      const std::lock_guard lock(mutex_);
      const bool expired = credential_ && credential_->expires &&
                           wall_now() + kExpiryMargin >= *credential_->expires;
      if (credential_ && !expired) return credential_->token;
    }
    auto text = run(plugin_, wait);
    if (!text) return text.error();
    auto parsed = parse_exec_credential(*text, plugin_);
    if (!parsed) return parsed.error();
    const std::lock_guard lock(mutex_);
    credential_ = std::move(parsed).value();
    if (credential_->certificate != last_certificate_) {
      last_certificate_ = credential_->certificate;
      ++generation_;
    }
    return credential_->token;
  }

  void invalidate() override {
    const std::lock_guard lock(mutex_);
    credential_.reset();
  }

  std::optional<ClientCertificate> certificate() const override {
    const std::lock_guard lock(mutex_);
    return credential_ ? credential_->certificate : std::nullopt;
  }
  std::uint64_t generation() const override {
    const std::lock_guard lock(mutex_);
    return generation_;
  }

 private:
  const ExecPlugin plugin_;
  std::timed_mutex running_;
  mutable std::mutex mutex_;
  std::optional<ExecCredentialStatus> credential_;
  std::optional<ClientCertificate> last_certificate_;  // of the last run
  std::uint64_t generation_ = 0;
};

}  // namespace

std::shared_ptr<Credentials> exec_credentials(ExecPlugin plugin) {
  return std::make_shared<ExecCredentials>(std::move(plugin));
}

Result<ExecCredentialStatus> parse_exec_credential(std::string_view text,
                                                   const ExecPlugin& plugin) {
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  if (!tree.is_object()) return plugin_error(plugin, "did not write a JSON object");
  if (string_member(tree, "kind") != "ExecCredential") {
    return plugin_error(plugin, "did not write an ExecCredential");
  }
  if (string_member(tree, "apiVersion") != plugin.api_version) {
    return plugin_error(plugin, "wrote a different apiVersion, expected " + plugin.api_version);
  }
  const auto status = tree.find("status");
  if (status == tree.end() || !status->is_object()) {
    return plugin_error(plugin, "wrote an ExecCredential without status");
  }
  ExecCredentialStatus credential;
  credential.token = string_member(*status, "token");
  if (!credential.token.empty()) {
    const Status fit = check_token(credential.token, plugin.where + ": status.token");
    if (!fit) return fit.error();
  }
  ClientCertificate certificate{string_member(*status, "clientCertificateData"),
                                string_member(*status, "clientKeyData")};
  if (certificate.certificate_pem.empty() != certificate.key_pem.empty()) {
    return plugin_error(plugin, "wrote only one of clientCertificateData and clientKeyData");
  }
  if (!certificate.key_pem.empty()) credential.certificate = std::move(certificate);
  if (credential.token.empty() && !credential.certificate) {
    return plugin_error(plugin, "wrote neither a token nor a client certificate");
  }
  if (const std::string expires = string_member(*status, "expirationTimestamp"); !expires.empty()) {
    credential.expires = parse_timestamp(expires);
    if (!credential.expires)
      return plugin_error(plugin, "wrote an expirationTimestamp that is not a timestamp");
  }
  return credential;
}

Result<std::filesystem::path> resolve_command(const std::string& command,
                                              const std::filesystem::path& directory,
                                              std::string_view search_path,
                                              const std::string& where) {
  if (command.find('/') != std::string::npos) {
    const std::filesystem::path path = directory / command;
    if (is_program(path)) return path;
    return Error{ExitCode::kUsage,
                 fmt::format("{}: {} is not an executable file", where, path.string())};
  }
  if (const auto found = find_program(command, search_path)) return *found;
  return Error{ExitCode::kUsage, fmt::format("{}: found no program {} in PATH", where, command)};
}

}  // namespace tilewright::kube
