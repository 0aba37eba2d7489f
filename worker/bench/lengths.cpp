#include "worker/bench/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright::bench {
namespace {

constexpr std::uint64_t kMaxLengthsBytes = 16 << 20;

}  // namespace

std::vector<std::int32_t> read_lengths(const std::string& path) {
  const std::string content = read_file(path, kMaxLengthsBytes, ExitCode::kUsage).or_throw();
  std::vector<std::int32_t> lengths;
  for (std::string_view rest = content; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto length = parse_number<std::int32_t>(line, 1, kMaxLength);
    if (!length) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("{}:{}: found {}, expected a number of tokens from 1 to {}", path,
                                lengths.size() + 1, quoted_excerpt(line), kMaxLength));
    }
    if (lengths.size() == kMaxLengths) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("{}: found more than {} lines, the maximum", path, kMaxLengths));
    }
    lengths.push_back(*length);
  }
  if (lengths.empty()) {
    throw Failure(
        ExitCode::kUsage,
        fmt::format("{}: found an empty file, expected one number of tokens per line", path));
  }
  return lengths;
}

std::vector<std::int32_t> sample_lengths(std::vector<std::int32_t> lengths, std::size_t count) {
  TW_CHECK(!lengths.empty() && count > 0, "{} lengths for a batch of {}", lengths.size(), count);
  std::sort(lengths.begin(), lengths.end());
  std::vector<std::int32_t> batch(count);
  for (std::size_t i = 0; i < count; ++i) {
    batch[i] = lengths[(2 * i + 1) * lengths.size() / (2 * count)];
  }
  std::uint64_t state = 1;
  for (std::size_t i = count; i > 1; --i) {  // Fisher and Yates
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(batch[i - 1], batch[(state >> 33) % i]);
  }
  return batch;
}

}  // namespace tilewright::bench
