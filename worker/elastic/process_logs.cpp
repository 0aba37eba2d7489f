#include "worker/elastic/process_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/rendezvous/types.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

constexpr int kBoth = 3;

int bit(Stream stream) { return stream == Stream::kOutput ? 1 : 2; }

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw Failure(ExitCode::kOutput, fmt::format("--log-dir: {} cannot be created: {}", path.string(),
                                               std::strerror(error)));
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(path, error.value());
}

}  // namespace

int StreamSelection::of(int local_rank) const {
  if (by_rank.empty()) return all;
  const auto found = by_rank.find(local_rank);
  return found == by_rank.end() ? 0 : found->second;
}

bool StreamSelection::any() const {
  return all != 0 || std::ranges::any_of(by_rank, [](const auto& one) { return one.second != 0; });
}

StreamSelection parse_streams(const char* flag, const std::string& text) {
  StreamSelection result;
  if (const auto all = parse_number<int>(text, 0, kBoth)) {
    result.all = *all;
    return result;
  }
  std::string_view rest = text;
  do {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const std::size_t colon = std::min(part.find(':'), part.size());
    const auto rank = parse_number<int>(part.substr(0, colon), 0, rendezvous::kMaxLocalRank);
    const auto streams = parse_number<int>(part.substr(std::min(colon + 1, part.size())), 0, kBoth);
    if (!rank || !streams)
      throw Failure(ExitCode::kUsage,
                    fmt::format("{} is \"{}\", expected 0, 1, 2 or 3, or LOCAL_RANK:N,... with "
                                "local ranks up to {}",
                                flag, text, rendezvous::kMaxLocalRank));
    result.by_rank[*rank] = *streams;
  } while (!rest.empty());
  return result;
}

bool ProcessLogs::is_shown(const LogOptions& options, int local_rank, Stream stream) {
  if (options.shown_ranks && !options.shown_ranks->contains(local_rank)) return false;
  const int wanted = bit(stream);
  return (options.redirects.of(local_rank) & wanted) == 0 ||
         (options.tee.of(local_rank) & wanted) != 0;
}

ProcessLogs::ProcessLogs(const LogOptions& options, const std::filesystem::path& run, int attempt,
                         int local_rank) {
  const int streams = options.redirects.of(local_rank) | options.tee.of(local_rank);
  if (streams == 0) return;
  const std::filesystem::path directory =
      run / fmt::format("attempt_{}", attempt) / fmt::format("{}", local_rank);
  make_directories(directory);
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    if ((streams & bit(stream)) == 0) continue;
    File& file = files_[static_cast<std::size_t>(stream)];
    file.path = directory / (stream == Stream::kOutput ? "stdout.log" : "stderr.log");
    file.descriptor =
        FileDescriptor(open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file.descriptor) fail(file.path, errno);
  }
}

void ProcessLogs::write(Stream stream, std::string_view bytes, Logger& log) {
  File& file = files_[static_cast<std::size_t>(stream)];
  while (file.descriptor && !file.failed && !bytes.empty()) {
    const ssize_t written = ::write(file.descriptor.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      file.failed = true;
      log.warn("agent: {} cannot be written: {}; further output is not stored", file.path.string(),
               std::strerror(errno));
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::filesystem::path create_run_directory(const LogOptions& options, const std::string& run_id) {
  std::filesystem::path parent = options.directory;
  if (parent.empty()) {
    std::string pattern = temporary_directory().or_throw() / "tilewright-logs-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) fail(pattern, errno);
    parent = pattern;
  }
  make_directories(parent);
  std::string pattern = parent / (run_id + "_XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) fail(pattern, errno);
  return pattern;
}

}  // namespace tilewright::elastic
