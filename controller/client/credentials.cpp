#include "controller/client/credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/files.h"

namespace tilewright::kube {
namespace {

constexpr std::uint64_t kMaxTokenBytes = 64 << 10;

class NoCredentials : public Credentials {
 public:
  Result<std::string> token(const net::Wait&) override { return std::string(); }
};

class StaticToken : public Credentials {
 public:
  explicit StaticToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> token(const net::Wait&) override { return token_; }

 private:
  const std::string token_;
};

Result<std::string> read_token(const std::filesystem::path& path) {
  auto content = read_file(path, kMaxTokenBytes, ExitCode::kUsage);
  if (!content) return content.error();
  constexpr std::string_view kWhitespace = " \t\r\n";
  const auto first = content->find_first_not_of(kWhitespace);
  const auto last = content->find_last_not_of(kWhitespace);
  std::string token = first == std::string::npos ? "" : content->substr(first, last - first + 1);
  const Status fit = check_token(token, path.string());
  if (!fit) return fit.error();
  return token;
}

class TokenFile : public Credentials {
 public:
  TokenFile(std::filesystem::path path, std::string token, Duration refresh_interval)
      : path_(std::move(path)),
        refresh_interval_(refresh_interval),
        token_(std::move(token)),
        read_(monotonic_now()) {}

  Result<std::string> token(const net::Wait&) override {
    const std::lock_guard lock(mutex_);
    if (stale_ || monotonic_now() - read_ >= refresh_interval_) {
      // The file may be in the middle of a replacement: keep the old token on errors.
      if (auto fresh = read_token(path_)) token_ = std::move(fresh).value();
      read_ = monotonic_now();
      stale_ = false;
    }
    return token_;
  }

  void invalidate() override {
    const std::lock_guard lock(mutex_);
    stale_ = true;
  }

 private:
  const std::filesystem::path path_;
  const Duration refresh_interval_;
  std::mutex mutex_;
  std::string token_;
  MonotonicTime read_;
  bool stale_ = false;
};

}  // namespace

Status check_token(std::string_view token, const std::string& where) {
  if (token.empty()) return Error{ExitCode::kUsage, where + ": found an empty token"};
  const bool fit =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (fit) return {};
  return Error{ExitCode::kUsage, where +
                                     ": the token contains spaces, control or non-ASCII "
                                     "characters, which are not allowed in an HTTP header"};
}

std::shared_ptr<Credentials> no_credentials() { return std::make_shared<NoCredentials>(); }

Result<std::shared_ptr<Credentials>> static_token(std::string token, const std::string& where) {
  const Status fit = check_token(token, where);
  if (!fit) return fit.error();
  return std::shared_ptr<Credentials>(std::make_shared<StaticToken>(std::move(token)));
}

Result<std::shared_ptr<Credentials>> token_file(const std::filesystem::path& path,
                                                Duration refresh_interval) {
  auto token = read_token(path);
  if (!token) return token.error();
  return std::shared_ptr<Credentials>(
      std::make_shared<TokenFile>(path, std::move(token).value(), refresh_interval));
}

}  // namespace tilewright::kube
