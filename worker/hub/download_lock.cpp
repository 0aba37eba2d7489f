#include "worker/hub/download_lock.h"

#include <fmt/format.h>

#include "common/base/result.h"

namespace tilewright::hub {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};

}  // namespace

FileLock lock_download(const std::filesystem::path& path, const HubOptions& options,
                       const std::function<std::uintmax_t()>& progress) {
  std::uintmax_t last = progress();
  MonotonicTime deadline = monotonic_now() + options.limits.lock;
  bool reported = false;
  return FileLock(path, [&] {
    if (!reported) {
      options.report(fmt::format("waiting for another process that downloads the same file ({})",
                                 path.string()));
    }
    reported = true;
    if (const std::uintmax_t now = progress(); now != last) {
      last = now;
      deadline = monotonic_now() + options.limits.lock;
    }
    if (monotonic_now() >= deadline) {
      throw Failure(ExitCode::kHubUnavailable,
                    fmt::format("{}: another process holds the lock and has downloaded nothing "
                                "for {}",
                                path.string(), format_duration(options.limits.lock)));
    }
    if (!net::sleep_until(net::within(kPollInterval, options.cancel))) {
      throw Failure(ExitCode::kTerminated, fmt::format("{}: cancelled", path.string()));
    }
    return true;
  });
}

}  // namespace tilewright::hub
