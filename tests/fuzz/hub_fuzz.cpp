#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <thread>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/net/connect.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/hub/dataset.h"
#include "worker/hub/model.h"

namespace tilewright::fuzz {
namespace {

constexpr std::string_view kEndOfResponse = "\n---\n";

std::vector<std::string> split_responses(std::string_view input) {
  std::vector<std::string> responses;
  while (!input.empty() && responses.size() < 64) {
    const std::size_t end = input.find(kEndOfResponse);
    responses.emplace_back(input.substr(0, end));
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + kEndOfResponse.size());
  }
  return responses;
}

// Answers one request per connection with the next response, byte for byte, and after the last one
// without any. It is every host's proxy, so that no redirect leaves this process.
class Server {
 public:
  Server() : listener_(net::Listener::bind({"127.0.0.1", 0}).or_throw()) {
    const std::string url = "http://" + net::to_string(listener_.local_address());
    for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) {
      setenv(name, url.c_str(), 1);
    }
    for (const char* name : {"no_proxy", "NO_PROXY", "HTTPS_PROXY", "ALL_PROXY"}) unsetenv(name);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    stop_.signal();
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void answer_with(std::vector<std::string> responses) {
    const std::lock_guard lock(mutex_);
    responses_ = std::move(responses);
    next_ = 0;
  }

 private:
  std::string next_response() {
    const std::lock_guard lock(mutex_);
    return next_ < responses_.size() ? responses_[next_++] : std::string();
  }

  void serve() {
    while (net::wait_ready(listener_.fd(), POLLIN, net::within(std::chrono::hours(24), &stop_)) ==
           net::Ready::kYes) {
      auto accepted = listener_.try_accept();
      if (!accepted.ok()) continue;
      net::Socket socket = std::move(accepted).value();
      const net::Wait wait = net::within(kTimeout, &stop_);
      std::string request;
      std::byte byte{};
      while (!request.ends_with("\r\n\r\n") && socket.read_exact(std::span(&byte, 1), wait).ok()) {
        request += static_cast<char>(byte);
      }
      const std::string response = next_response();
      (void)socket.write_all(std::as_bytes(std::span(response)), wait);
    }
  }

  net::Listener listener_;
  net::WakeUp stop_;
  std::mutex mutex_;
  std::vector<std::string> responses_;
  std::size_t next_ = 0;
  std::thread thread_;
};

hub::HubOptions make_options(const std::filesystem::path& cache) {
  hub::HubOptions options;
  options.endpoint = "http://hub.invalid";
  options.cache_dir = cache;
  options.limits.connect = options.limits.stall = options.limits.lock = kTimeout;
  options.limits.attempts = 2;
  options.limits.first_pause = options.limits.max_pause = options.limits.max_retry_after =
      Duration(0);
  options.progress = [](const std::string& line) { check_message(line); };
  return options;
}

// A server names files and commits, which become paths: all of them are in the cache.
void check_is_alone(const std::filesystem::path& cache) {
  const std::filesystem::path inner = cache.parent_path();
  for (const std::filesystem::path& folder : {scratch_directory(), inner.parent_path(), inner}) {
    TW_CHECK(std::ranges::distance(std::filesystem::directory_iterator(folder)) == 1,
             "a file outside the cache, in {}", folder.string());
  }
}

}  // namespace

int fuzz_hub(const std::uint8_t* data, std::size_t size) {
  static Server server;
  const std::filesystem::path cache = scratch_directory() / "a" / "b" / "hub";
  const hub::HubOptions options = make_options(cache);
  const MonotonicTime start = monotonic_now();
  for (const bool model : {true, false}) {
    clear_scratch();
    std::filesystem::create_directories(cache);
    server.answer_with(split_responses(as_text(data, size)));
    try {
      if (model) {
        const auto folder = hub::resolve_model({.name_or_path = "bert-base-uncased"}, options);
        TW_CHECK(std::filesystem::exists(folder / "config.json"), "a model without a config");
      } else {
        const auto files = hub::resolve_dataset({.name = "glue", .config = "mrpc"}, options);
        TW_CHECK(!files.splits.empty(), "a data set without splits");
        for (const auto& [split, paths] : files.splits) {
          for (const auto& path : paths) {
            TW_CHECK(std::filesystem::exists(path), "{} is missing", path.string());
          }
        }
      }
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
    check_is_alone(cache);
  }
  TW_CHECK(monotonic_now() - start < kTimeout, "waits for a server that has closed");
  return 0;
}

}  // namespace tilewright::fuzz
