#include "worker/cli/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/training_flags.h"
#include "common/launch/dates.h"

namespace tilewright::cli {
namespace {

constexpr std::int64_t kLatestLaunch = 7258118400;  // the year 2200

// Whether the last --output_dir holds a date.
bool dates_output_dir(const std::vector<std::string>& arguments) {
  bool dates = false;
  for (const FlagArgument& argument : split_command_line(arguments)) {
    if (argument.flag == find_training_flag("output_dir")) {
      dates = launch::holds_date(argument.value);
    }
  }
  return dates;
}

}  // namespace

int integer_variable(const GetVariable& variable, const char* name, int least, int if_not_set,
                     int most) {
  const std::string text = variable(name);
  if (text.empty()) return if_not_set;
  if (const auto value = parse_number<int>(text, least, most)) return *value;
  throw Failure(ExitCode::kUsage, fmt::format("{}: found {}, expected an integer from {} to {}",
                                              name, quoted_excerpt(text), least, most));
}

ThreadCount thread_count(const host::ProcessPlan& plan, std::int64_t flag,
                         const std::string& omp_num_threads) {
  const int most = plan.max_threads;
  const auto limited = [&](const char* source, std::int64_t asked, std::string_view written) {
    if (asked <= most) return ThreadCount{static_cast<int>(asked), ""};
    const auto available = static_cast<std::size_t>(most);
    return ThreadCount{
        most, fmt::format("{}: found {}, but this process may use {}; using {}", source, written,
                          counted(available, "CPU"), counted(available, "thread"))};
  };
  if (flag > 0) return limited("--threads", flag, fmt::format("{}", flag));
  ThreadCount standard = {plan.threads, ""};
  if (omp_num_threads.empty()) return standard;
  const std::string first = omp_num_threads.substr(0, omp_num_threads.find(','));
  int asked = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), asked);
  if (error == std::errc::result_out_of_range) {
    asked = std::numeric_limits<int>::max();
  } else if (error != std::errc() || asked < 1) {
    asked = 0;
  }
  if (asked == 0 || end != first.data() + first.size()) {
    return {standard.threads,
            fmt::format("{}: found {}, expected an integer from 1; using {}", env::kOmpNumThreads,
                        quoted_excerpt(omp_num_threads),
                        counted(static_cast<std::size_t>(standard.threads), "thread"))};
  }
  return limited(env::kOmpNumThreads, asked, first);
}

LogLevel log_level(const std::string& loglevel) {
  static const std::map<std::string, std::string> kLevels = {
      {"NOTSET", "trace"}, {"DEBUG", "debug"}, {"INFO", "info"},         {"WARN", "warn"},
      {"WARNING", "warn"}, {"ERROR", "error"}, {"CRITICAL", "critical"}, {"FATAL", "critical"}};
  if (loglevel.empty()) return {};
  std::string upper = loglevel;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (const auto found = kLevels.find(upper); found != kLevels.end()) return {found->second, ""};
  return {"info", fmt::format("{}: found {}, expected DEBUG, INFO, WARNING, ERROR or CRITICAL; "
                              "using INFO",
                              env::kLogLevel, quoted_excerpt(loglevel))};
}

std::optional<std::int64_t> launch_time(const GetVariable& variable) {
  const std::string text = variable(env::kLaunchTime);
  if (text.empty()) return std::nullopt;
  const auto seconds = parse_number<std::int64_t>(text, 0, kLatestLaunch);
  if (!seconds) {
    throw Failure(ExitCode::kUsage, fmt::format("{}: found {}, expected seconds since 1970",
                                                env::kLaunchTime, quoted_excerpt(text)));
  }
  return *seconds;
}

ExpandedArguments expand_arguments(const std::vector<std::string>& arguments,
                                   const GetVariable& variable) {
  ExpandedArguments expanded{arguments};
  for (std::string& argument : expanded.arguments) {
    if (!launch::holds_date(argument)) continue;
    expanded.dates = true;
    const std::int64_t time = launch_time(variable).value_or(
        std::chrono::duration_cast<std::chrono::seconds>(wall_now().time_since_epoch()).count());
    argument = launch::expand_dates(argument, time).or_throw();
  }
  const std::string kept = expanded.dates ? variable(env::kOutputDir) : "";
  if (!kept.empty() && dates_output_dir(arguments)) {
    expanded.arguments.push_back("--output_dir=" + kept);  // the last value wins
  }
  return expanded;
}

TrainingArguments parse_arguments(std::span<const std::string> arguments,
                                  const GetVariable& variable) {
  TrainingArguments parsed = TrainingArguments::parse(arguments).or_throw();
  parsed.expand_home(variable);
  return parsed;
}

}  // namespace tilewright::cli
