#include "common/net/endpoint.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>

namespace tilewright::net {
namespace {

// Calls getaddrinfo with AI_NUMERICSERV and `flags`.
std::pair<int, AddressList> lookup(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int code = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(), port.c_str(),
                               &hints, &list);
  return {code, AddressList(code == 0 ? list : nullptr)};
}

// Shared with the resolving thread, which may outlive the wait.
struct PendingLookup {
  std::mutex mutex;
  std::optional<std::pair<int, AddressList>> answer;
  WakeUp done;
};

}  // namespace

Result<Address> address_of(int fd, int (*query)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* raw = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (query(fd, raw, &size) != 0) {
    return Error{ExitCode::kPeerLost,
                 fmt::format("a socket has no address: {}", std::strerror(errno))};
  }
  const int code =
      getnameinfo(raw, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  if (code != 0) {
    return Error{ExitCode::kPeerLost,
                 fmt::format("a socket has no TCP address: {}", gai_strerror(code))};
  }
  // Show the IPv4 peer of a dual-stack socket as an IPv4 address.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view shown = host;
  const bool is_mapped = shown.starts_with(kMapped) && shown.find('.') != shown.npos;
  return Address{std::string(shown.substr(is_mapped ? kMapped.size() : 0)),
                 static_cast<std::uint16_t>(std::stoul(port))};
}

Result<AddressList> resolve(const Address& address, AddressUse use, const Wait& wait) {
  const int passive_flag = use == AddressUse::kListen ? AI_PASSIVE : 0;
  auto [code, list] = lookup(address, passive_flag | AI_NUMERICHOST);
  if (code == EAI_NONAME && !address.host.empty()) {
    const Error late{ExitCode::kPeerLost,
                     fmt::format("host {}: the name did not resolve in time", address.host)};
    // No caller would wait for the thread.
    if (monotonic_now() >= wait.deadline || (wait.cancel && wait.cancel->signalled())) return late;
    auto state = std::make_shared<PendingLookup>();
    std::thread([state, address, passive_flag] {
      auto answer = lookup(address, passive_flag);
      {
        const std::lock_guard lock(state->mutex);
        state->answer = std::move(answer);
      }
      state->done.signal();
    }).detach();
    if (wait_ready(state->done.fd(), POLLIN, wait) != Ready::kYes) return late;
    const std::lock_guard lock(state->mutex);
    code = state->answer->first;
    list = std::move(state->answer->second);
  }
  // A system without /etc/hosts may not resolve this name, which always means loopback (RFC 6761,
  // section 6.3). Without AI_PASSIVE an empty host is loopback, too.
  if (code != 0 && address.host == "localhost") {
    std::tie(code, list) = lookup({"", address.port}, 0);
  }
  if (code != 0) {
    return Error{ExitCode::kPeerLost, fmt::format("host {}: the name does not resolve: {}",
                                                  address.host, gai_strerror(code))};
  }
  return std::move(list);
}

}  // namespace tilewright::net
