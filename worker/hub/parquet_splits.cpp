#include "worker/hub/parquet_splits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::hub {
namespace {

constexpr std::string_view kSuffix = ".parquet";
constexpr std::string_view kDefaultConfig = "default";
constexpr std::size_t kDigits = 5;       // of the number of a shard
constexpr std::size_t kHashDigits = 16;  // of the hash that older files have in their names
constexpr std::size_t kMaxListedConfigs = 40;

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool all_hex_digits(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

struct FileName {
  std::string split;
  bool numbered = false;
  std::size_t shard = 0, shards = 0;
};

// "train-00000-of-00002-0123456789abcdef" and so on.
FileName parse_file_name(std::string_view stem) {
  std::string_view rest = stem;
  if (rest.size() > kHashDigits + 1 && rest[rest.size() - kHashDigits - 1] == '-' &&
      all_hex_digits(rest.substr(rest.size() - kHashDigits))) {
    rest.remove_suffix(kHashDigits + 1);
  }
  constexpr std::size_t kNumbers = 1 + kDigits + 4 + kDigits;  // "-00000-of-00002"
  if (rest.size() > kNumbers) {
    const std::string_view numbers = rest.substr(rest.size() - kNumbers);
    const std::string_view shard = numbers.substr(1, kDigits);
    const std::string_view shards = numbers.substr(1 + kDigits + 4);
    if (numbers.front() == '-' && numbers.substr(1 + kDigits, 4) == "-of-" && all_digits(shard) &&
        all_digits(shards)) {
      rest.remove_suffix(kNumbers);
      return {std::string(rest), true, std::stoul(std::string(shard)),
              std::stoul(std::string(shards))};
    }
  }
  return {.split = std::string(stem)};
}

// The configuration and split of a path; nullopt if it is no data file of a configuration.
struct Place {
  std::string config;
  FileName name;
};

std::optional<Place> place_of(std::string_view path) {
  if (!path.ends_with(kSuffix)) return std::nullopt;
  path.remove_suffix(kSuffix.size());
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() > 3) return std::nullopt;
  const bool top = parts.size() == 1 || parts[0] == "data";
  Place place{std::string(top ? kDefaultConfig : parts[0]), {}};
  if (parts.size() == 3) {
    place.name.split = parts[1];
  } else {
    place.name = parse_file_name(parts.back());
  }
  return place;
}

void check_shards(const std::vector<FileName>& names, const std::string& where,
                  const std::string& config) {
  std::map<std::string, std::set<std::size_t>> numbers;
  std::map<std::string, std::size_t> expected;
  for (const FileName& name : names) {
    if (!name.numbered) continue;
    numbers[name.split].insert(name.shard);
    expected[name.split] = std::max(expected[name.split], name.shards);
  }
  for (const auto& [split, count] : expected) {
    if (numbers[split].size() != count || *numbers[split].rbegin() + 1 != count) {
      throw Failure(ExitCode::kData,
                    fmt::format("data set {}, configuration {}: found {} shards of the split {}, "
                                "expected {}",
                                where, config, numbers[split].size(), split, count));
    }
  }
}

}  // namespace

ParquetSplits find_parquet_splits(const std::vector<std::string>& files, const std::string& config,
                                  const std::string& where) {
  std::map<std::string, std::vector<std::pair<std::string, FileName>>> configs;
  for (const std::string& file : files) {
    if (auto place = place_of(file)) {
      configs[place->config].emplace_back(file, std::move(place->name));
    }
  }
  if (configs.empty()) {
    throw Failure(ExitCode::kData,
                  fmt::format("data set {}: found no Parquet file among {} files, expected "
                              "CONFIGURATION/SPLIT-00000-of-00001.parquet",
                              where, files.size()));
  }
  const auto found = config.empty() && configs.size() == 1 ? configs.begin() : configs.find(config);
  if (found == configs.end()) {
    std::vector<std::string> names;
    for (const auto& [name, unused] : configs) {
      if (names.size() < kMaxListedConfigs) names.push_back(name);
    }
    throw Failure(ExitCode::kData,
                  fmt::format("data set {}: found {}, expected one of {}", where,
                              config.empty() ? "no configuration name (--dataset_config_name)"
                                             : fmt::format("the configuration \"{}\"", config),
                              fmt::join(names, ", ")));
  }
  ParquetSplits result{found->first, {}};
  std::vector<FileName> names;
  for (const auto& [file, name] : found->second) {
    result.splits[name.split].push_back(file);
    names.push_back(name);
  }
  check_shards(names, where, result.config);
  for (auto& [split, paths] : result.splits) std::ranges::sort(paths);
  return result;
}

}  // namespace tilewright::hub
