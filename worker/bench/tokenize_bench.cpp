#include "worker/bench/tokenize_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/files.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "worker/bench/statistics.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/thread_pool.h"
#include "worker/text/tokenizer.h"
#include "worker/text/utf8.h"

namespace tilewright::bench {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
constexpr std::int64_t kChunk = 64;  // lines that a thread takes at a time

std::vector<std::string_view> lines_of(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    lines.push_back(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  return lines;
}

double megabytes_per_second(const TokenizeBenchResult& result) {
  return static_cast<double>(result.bytes) * 1e-6 / result.median;
}

}  // namespace

TokenizeBenchResult bench_tokenize(const TokenizeBenchOptions& options) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.tokenizer);
  const std::string content = read_file(options.file, kMaxTextBytes, ExitCode::kData).or_throw();
  if (const auto bad = text::find_invalid_utf8(content)) {
    throw Failure(ExitCode::kData, fmt::format("{}: found invalid UTF-8 at byte {}, expected text",
                                               options.file.string(), *bad + 1));
  }
  const std::vector<std::string_view> lines = lines_of(content);
  runtime::ThreadPool pool(options.threads);
  TokenizeBenchResult result;
  result.options = options;
  result.cpu = runtime::detect_cpu().model;
  result.bytes = content.size();
  for (int repetition = -1; repetition < options.repetitions; ++repetition) {
    std::atomic<std::size_t> tokens = 0;
    const auto tokenize = [&](std::int64_t first, std::int64_t end) {
      std::vector<std::int32_t> ids;
      for (std::int64_t line = first; line < end; ++line) {
        tokenizer.tokenize(lines[static_cast<std::size_t>(line)], ids);
      }
      tokens += ids.size();
    };
    const double time = seconds([&] { pool.for_ranges(std::ssize(lines), kChunk, tokenize); });
    if (repetition >= 0) result.seconds.push_back(time);
    result.tokens = tokens;
  }
  result.median = median(result.seconds);
  return result;
}

std::string TokenizeBenchResult::to_json() const {
  nlohmann::ordered_json json;
  json["benchmark"] = "tokenize";
  json["cpu"] = cpu;
  json["threads"] = options.threads;
  json["bytes"] = bytes;
  json["tokens"] = tokens;
  json["seconds"] = seconds;
  json["median_seconds"] = median;
  json["megabytes_per_second"] = megabytes_per_second(*this);
  json["tokens_per_second"] = static_cast<double>(tokens) / median;
  return json.dump(2) + "\n";
}

std::string TokenizeBenchResult::to_text() const {
  return fmt::format("{} bytes, {} tokens on {}: {:.1f} MB/s, {:.2f} million tokens/s\n", bytes,
                     tokens, counted(static_cast<std::size_t>(options.threads), "thread"),
                     megabytes_per_second(*this), static_cast<double>(tokens) * 1e-6 / median);
}

}  // namespace tilewright::bench
