#include "controller/operator/write_fault.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "common/base/strings.h"

namespace tilewright::controller {

Status install_write_fault(std::string_view text, kube::SenderOptions& options) {
  if (text.empty()) return {};
  const std::size_t at = text.find('@');
  const std::string_view point = text.substr(0, at);
  const std::string_view digits =
      at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  const auto wanted = parse_number<std::uint64_t>(digits, 1);
  const bool pause = point == "pause_at_write";
  const bool before = pause || point == "before_write";
  if ((!before && point != "after_write") || !wanted) {
    return Error{ExitCode::kUsage,
                 fmt::format("TILEWRIGHT_FAULT={}: expected before_write@N, after_write@N or "
                             "pause_at_write@N, N from 1",
                             text)};
  }
  auto writes = std::make_shared<std::atomic<std::uint64_t>>(0);
  auto& hook = before ? options.before_write : options.after_write;
  hook = [writes, wanted = *wanted,
          signal = pause ? SIGSTOP : SIGKILL](const kube::ApiRequest& request) {
    if (request.resource != "leases" && ++*writes == wanted) kill(getpid(), signal);
  };
  return {};
}

}  // namespace tilewright::controller
