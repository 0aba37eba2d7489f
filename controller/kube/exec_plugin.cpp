// Runs the plugin, reads its answer and keeps it.
#include "controller/kube/exec_plugin.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "common/process/child_process.h"
#include "controller/api/decode.h"
#include "controller/api/json_members.h"
#include "controller/kube/tls.h"

namespace tilewright::kube {
namespace {

constexpr std::size_t kMaxAnswerBytes = 1 << 20;
// A token is not used any more when it has less than this to live: the request takes time too.
constexpr auto kSpare = std::chrono::seconds(10);
// How late a request that waits for another's plugin hears of its own cancellation.
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

Error wrong(const ExecPlugin& plugin, const std::string& what) {
  return {ExitCode::kUsage, fmt::format("{}: {} {}", plugin.where, plugin.program.string(), what)};
}

std::string exec_info(const ExecPlugin& plugin) {
  nlohmann::json spec = {{"interactive", false}};
  if (!plugin.cluster.is_null()) spec["cluster"] = plugin.cluster;
  return nlohmann::json{
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", spec}}
      .dump();
}

// The last line of what the plugin told people, for the sentence.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const auto start = text.rfind('\n');
  if (start != std::string::npos) text.erase(0, start + 1);
  return text.substr(0, 200);
}

Result<std::string> run(const ExecPlugin& plugin, const net::Wait& wait) {
  ChildCommand command;
  command.program = plugin.program;
  command.arguments = plugin.arguments;
  auto over = plugin.environment;
  over["KUBERNETES_EXEC_INFO"] = exec_info(plugin);
  over.try_emplace(kCertFileVariable, system_authorities_file());
  command.environment = environment_with(over);
  command.separate_error = true;
  auto child = ChildProcess::start(command);
  if (!child) return wrong(plugin, "cannot be run: " + child.error().message);
  const MonotonicTime until = std::min(wait.deadline, monotonic_now() + plugin.deadline);
  std::string answer, complaints;
  while (true) {
    std::array<pollfd, 4> fds = {{{child->output_fd(), POLLIN, 0},
                                  {child->error_fd(), POLLIN, 0},
                                  {child->exit_fd(), POLLIN, 0},
                                  {wait.cancel ? wait.cancel->fd() : -1, POLLIN, 0}}};
    poll(fds.data(), fds.size(), net::poll_timeout(until));
    if (fds[0].revents != 0) answer += child->read_output();
    if (fds[1].revents != 0) complaints += child->read_error();
    if (answer.size() > kMaxAnswerBytes || complaints.size() > kMaxAnswerBytes) {
      return wrong(plugin, "wrote more than 1 MiB");
    }
    if (wait.cancel && wait.cancel->signalled()) return wrong(plugin, "was cancelled");
    if (const auto code = child->poll_exit()) {
      for (std::string more; !(more = child->read_output()).empty();) answer += more;
      for (std::string more; !(more = child->read_error()).empty();) complaints += more;
      if (*code == 0) return answer;
      const std::string said = last_line(complaints);
      return wrong(plugin, fmt::format("ended with exit code {}{}{}", *code,
                                       said.empty() ? "" : ": ", said));
    }
    if (monotonic_now() >= until) {
      return wrong(plugin, fmt::format("gave no answer in {}", to_words(plugin.deadline)));
    }
  }
}

class ExecCredentials : public Credentials {
 public:
  explicit ExecCredentials(ExecPlugin plugin) : plugin_(std::move(plugin)) {}

  Result<std::string> token(const net::Wait& wait) override {
    // Held while the plugin runs: many requests at once need it only once. Those that wait keep
    // their own deadlines.
    std::unique_lock running(running_, std::defer_lock);
    while (!running.try_lock_until(std::min(wait.deadline, monotonic_now() + kBetweenLooks))) {
      if (wait.cancel && wait.cancel->signalled()) return wrong(plugin_, "was cancelled");
      if (monotonic_now() >= wait.deadline) {
        return wrong(plugin_, "is still at work for another request");
      }
    }
    {
      const std::lock_guard lock(mutex_);
      const bool expired = answer_ && answer_->expires && wall_now() + kSpare >= *answer_->expires;
      if (answer_ && !expired) return answer_->token;
    }
    auto text = run(plugin_, wait);
    if (!text) return text.error();
    auto answer = parse_exec_answer(*text, plugin_);
    if (!answer) return answer.error();
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer).value();
    if (answer_->certificate != shown_) {
      shown_ = answer_->certificate;
      ++generation_;
    }
    return answer_->token;
  }

  void refused() override {
    const std::lock_guard lock(mutex_);
    answer_.reset();
  }

  std::optional<ClientCertificate> certificate() const override {
    const std::lock_guard lock(mutex_);
    return answer_ ? answer_->certificate : std::nullopt;
  }
  std::uint64_t generation() const override {
    const std::lock_guard lock(mutex_);
    return generation_;
  }

 private:
  const ExecPlugin plugin_;
  std::timed_mutex running_;
  mutable std::mutex mutex_;
  std::optional<ExecAnswer> answer_;
  std::optional<ClientCertificate> shown_;  // of the last answer
  std::uint64_t generation_ = 0;
};

}  // namespace

std::shared_ptr<Credentials> exec_credentials(ExecPlugin plugin) {
  return std::make_shared<ExecCredentials>(std::move(plugin));
}

Result<ExecAnswer> parse_exec_answer(std::string_view text, const ExecPlugin& plugin) {
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  if (!tree.is_object()) return wrong(plugin, "wrote no JSON object");
  if (api::text_member(tree, "kind") != "ExecCredential") {
    return wrong(plugin, "wrote no ExecCredential");
  }
  if (api::text_member(tree, "apiVersion") != plugin.api_version) {
    return wrong(plugin, "wrote another apiVersion than " + plugin.api_version);
  }
  const auto status = tree.find("status");
  if (status == tree.end() || !status->is_object()) {
    return wrong(plugin, "wrote an ExecCredential without status");
  }
  ExecAnswer answer;
  answer.token = api::text_member(*status, "token");
  if (!answer.token.empty()) {
    const Status fit = check_token(answer.token, plugin.where + ": status.token");
    if (!fit) return fit.error();
  }
  ClientCertificate certificate{api::text_member(*status, "clientCertificateData"),
                                api::text_member(*status, "clientKeyData")};
  if (certificate.certificate_pem.empty() != certificate.key_pem.empty()) {
    return wrong(plugin, "wrote only one of clientCertificateData and clientKeyData");
  }
  if (!certificate.key_pem.empty()) answer.certificate = std::move(certificate);
  if (answer.token.empty() && !answer.certificate) {
    return wrong(plugin, "wrote neither a token nor a client certificate");
  }
  if (const std::string expires = api::text_member(*status, "expirationTimestamp");
      !expires.empty()) {
    answer.expires = api::parse_timestamp(expires);
    if (!answer.expires) return wrong(plugin, "wrote an expirationTimestamp that is no time");
  }
  return answer;
}

Result<std::filesystem::path> find_program(const std::string& command,
                                           const std::filesystem::path& folder,
                                           std::string_view search_path, const std::string& where) {
  const auto runnable = [](const std::filesystem::path& path) {
    return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path);
  };
  if (command.find('/') != std::string::npos) {
    const std::filesystem::path path = folder / command;
    if (runnable(path)) return path;
    return Error{ExitCode::kUsage,
                 fmt::format("{}: {} is no program that can be run", where, path.string())};
  }
  while (!search_path.empty()) {
    const auto colon = std::min(search_path.find(':'), search_path.size());
    const std::filesystem::path path =
        std::filesystem::path(search_path.substr(0, colon)) / command;
    // No program is taken from the current folder unasked.
    if (path.is_absolute() && runnable(path)) return path;
    search_path.remove_prefix(std::min(colon + 1, search_path.size()));
  }
  return Error{ExitCode::kUsage, fmt::format("{}: found no program {} along PATH", where, command)};
}

}  // namespace tilewright::kube
