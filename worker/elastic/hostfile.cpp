#include "worker/elastic/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/rendezvous/types.h"

namespace tilewright::elastic {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::string_view kSpace = " \t\r";
constexpr const char* kForms = "a line \"host\", \"host slots=N\" or \"host:N\"";

std::optional<int> count_of(std::string_view text) {
  return parse_number<int>(text, 1, rendezvous::kMaxLocalRank + 1);
}

// A name is handed to ssh and printed: no option, no control characters, no spaces.
bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '-' &&
         std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c < 127; });
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t size = std::min(line.find_first_of(kSpace), line.size());
    words.push_back(line.substr(0, size));
    line.remove_prefix(size);
  }
}

std::optional<Host> parse_line(const std::vector<std::string_view>& words) {
  std::string_view name = words.front();
  Host host;
  // The last colon of "host:2" and "[fd00::1]:2"; an address fd00::1 has no slots.
  const std::size_t colon = name.rfind(':');
  if (colon != std::string_view::npos &&
      (name.find(':') == colon || (name.starts_with('[') && name[colon - 1] == ']'))) {
    host.slots = count_of(name.substr(colon + 1));
    if (!host.slots) return std::nullopt;
    name = name.substr(0, colon);
  }
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (!is_host_name(name)) return std::nullopt;
  host.name = name;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = words[i].substr(0, equals);
    const auto count = count_of(words[i].substr(equals + 1));
    if (!count) return std::nullopt;
    if (key == "slots" && !host.slots) {
      host.slots = count;
    } else if (key != "max_slots" && key != "max-slots") {
      return std::nullopt;
    }
  }
  return host;
}

}  // namespace

Result<std::vector<Host>> parse_hostfile(std::string_view text, const std::string& where) {
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::vector<std::string_view> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    std::optional<Host> host = parse_line(words);
    if (!host)
      return Error{ExitCode::kUsage, fmt::format("{}:{}: found {}, expected {}", where, number,
                                                 quoted_excerpt(line, kLineExcerpt), kForms)};
    const auto known = std::ranges::find(hosts, host->name, &Host::name);
    if (known == hosts.end()) {
      hosts.push_back(std::move(*host));
    } else {
      known->slots = known->slots.value_or(1) + host->slots.value_or(1);
    }
  }
  if (hosts.empty())
    return Error{ExitCode::kUsage, fmt::format("{}: found no host, expected {}", where, kForms)};
  return hosts;
}

Result<std::vector<Host>> read_hostfile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return Error{ExitCode::kUsage,
                 fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno))};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes)
    return Error{ExitCode::kUsage, fmt::format("{}: found more than {} bytes, expected a list of "
                                               "hosts",
                                               path.string(), kMaxFileBytes)};
  return parse_hostfile(text, path.string());
}

Result<std::optional<int>> common_slots(const std::vector<Host>& hosts) {
  const bool any =
      std::ranges::any_of(hosts, [](const Host& host) { return host.slots.has_value(); });
  if (!any) return std::optional<int>();
  const int first = hosts.front().slots.value_or(1);
  for (const Host& host : hosts)
    if (host.slots.value_or(1) != first)
      return Error{ExitCode::kUsage,
                   fmt::format("the hosts {} and {} have {} and {} slots, expected the same number "
                               "on all hosts, or --nproc-per-node",
                               hosts.front().name, host.name, first, host.slots.value_or(1))};
  return std::optional<int>(first);
}

}  // namespace tilewright::elastic
