#include "worker/elastic/pmi1.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/printable.h"
#include "common/base/strings.h"

namespace tilewright::elastic {
namespace {

constexpr std::string_view kKey = "tilewright-rendezvous";
constexpr std::size_t kMaxSpaceName = 1024;
constexpr std::size_t kMinText = 128;  // an address and a key
constexpr Duration kFinishTimeout = std::chrono::seconds(10);

Failure problem(const std::string& what) {
  return {ExitCode::kPeerLost, "the launcher's process manager (PMI-1) " + what};
}

}  // namespace

std::optional<std::string_view> pmi1_field(std::string_view message, std::string_view name) {
  while (!message.empty()) {
    const std::string_view field = message.substr(0, message.find(' '));
    message.remove_prefix(std::min(message.size(), field.size() + 1));
    if (field.size() > name.size() && field.starts_with(name) && field[name.size()] == '=') {
      return field.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Pmi1::Pmi1(FileDescriptor connection, int rank, const net::Wait& wait)
    : connection_(std::move(connection)), rank_(rank) {
  const std::string init =
      call("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", wait);
  if (pmi1_field(init, "pmi_version") != "1") {
    throw problem(fmt::format("answered \"{}\", expected version 1", printable(init)));
  }
  const std::string maxes = call("cmd=get_maxes", "maxes", wait);
  const std::string_view most = pmi1_field(maxes, "vallen_max").value_or("");
  const auto max_text = parse_number<std::size_t>(most, kMinText);
  if (!max_text) {
    throw problem(fmt::format("answered \"{}\", expected vallen_max of {} or more",
                              printable(maxes), kMinText));
  }
  max_text_ = std::min(*max_text, kMaxLine / 2) - 1;  // vallen_max counts a terminating zero
  const std::string name = call("cmd=get_my_kvsname", "my_kvsname", wait);
  space_ = pmi1_field(name, "kvsname").value_or("");
  if (space_.empty() || space_.size() > kMaxSpaceName) {
    throw problem(fmt::format("answered \"{}\", expected kvsname", printable(name)));
  }
}

std::string Pmi1::share(std::string_view text, const net::Wait& wait) {
  if (rank_ == 0) {
    TW_CHECK(text.size() <= max_text_ && text.find_first_of(" \n") == std::string_view::npos,
             "a text of {} bytes for a key-value space", text.size());
    call(fmt::format("cmd=put kvsname={} key={} value={}", space_, kKey, text), "put_result", wait);
  }
  call("cmd=barrier_in", "barrier_out", wait);
  if (rank_ == 0) return std::string(text);
  const std::string result =
      call(fmt::format("cmd=get kvsname={} key={}", space_, kKey), "get_result", wait);
  const auto value = pmi1_field(result, "value");
  if (!value) throw problem("has no value of rank 0");
  return std::string(*value);
}

void Pmi1::finish() {
  try {
    call("cmd=finalize", "finalize_ack", net::within(kFinishTimeout));
  } catch (const Failure&) {  // the work is done; the launcher may have closed the connection
  }
  connection_ = {};
}

void Pmi1::abort(int code) {
  try {
    send(fmt::format("cmd=abort exitcode={}", code));
  } catch (const Failure&) {  // the launcher sees the end of the connection
  }
}

void Pmi1::send(std::string_view line) {
  const std::string bytes = std::string(line) + "\n";
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t size =
        ::send(connection_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) throw problem(fmt::format("is lost: {}", std::strerror(errno)));
    sent += static_cast<std::size_t>(size);
  }
}

std::string Pmi1::call(std::string_view request, std::string_view expected, const net::Wait& wait) {
  send(request);
  std::string answer = read_line(wait);
  const std::string_view command = pmi1_field(answer, "cmd").value_or("");
  const std::string_view result = pmi1_field(answer, "rc").value_or("0");
  if (command != expected || result != "0") {
    // Not the whole answer: it may hold the secret.
    throw problem(fmt::format("answered cmd={} rc={}, expected cmd={} rc=0", printable(command),
                              printable(result), expected));
  }
  return answer;
}

std::string Pmi1::read_line(const net::Wait& wait) {
  while (true) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() >= kMaxLine) {
      throw problem(fmt::format("sent a line of more than {} bytes", kMaxLine));
    }
    switch (net::wait_ready(connection_.get(), POLLIN, wait)) {
      case net::Ready::kYes:
        break;
      case net::Ready::kTimedOut:
        throw problem("did not answer in time: not all processes of the run have started");
      case net::Ready::kCancelled:
        throw problem("did not answer before this process was stopped");
    }
    std::array<char, 1024> buffer;
    const ssize_t size = ::read(connection_.get(), buffer.data(),
                                std::min(buffer.size(), kMaxLine - received_.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) throw problem("has closed the connection: a process of the run has ended");
    received_.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace tilewright::elastic
