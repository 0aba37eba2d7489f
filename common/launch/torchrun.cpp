#include "common/launch/torchrun.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "common/base/strings.h"
#include "common/contract/nearest.h"
#include "common/launch/unknown_value.h"

namespace tilewright::launch {
namespace {

using Value = std::optional<std::string> TorchrunOptions::*;
using Switch = bool TorchrunOptions::*;

bool from_zero(std::string_view text) { return parse_number<std::int64_t>(text, 0).has_value(); }
bool from_one(std::string_view text) { return parse_number<std::int64_t>(text, 1).has_value(); }

bool is_node_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return from_one(text);
  const std::string_view least = text.substr(0, colon), most = text.substr(colon + 1);
  const auto first = parse_number<std::int64_t>(least, 1);
  return first && parse_number<std::int64_t>(most, *first);
}

bool is_process_count(std::string_view text) {
  return from_one(text) || text == "auto" || text == "cpu" || text == "gpu" || text == "xpu";
}

bool is_port(std::string_view text) { return parse_number<int>(text, 0, 65535).has_value(); }

bool is_seconds(std::string_view text) {
  const auto value = parse_number<double>(text, 0);
  return value && *value < 1e9;
}

bool is_start_method(std::string_view text) {
  return text == "spawn" || text == "fork" || text == "forkserver";
}

// Whether `check` accepts every part of a list with commas.
template <typename Check>
bool each_part(std::string_view text, const Check& check) {
  while (true) {
    const std::size_t comma = text.find(',');
    if (!check(text.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool is_stream(std::string_view text) { return parse_number<int>(text, 0, 3).has_value(); }

bool is_redirection(std::string_view text) {
  return is_stream(text) || each_part(text, [](std::string_view part) {
           const std::size_t colon = part.find(':');
           return colon != std::string_view::npos && from_zero(part.substr(0, colon)) &&
                  is_stream(part.substr(colon + 1));
         });
}

bool is_rank_list(std::string_view text) { return each_part(text, from_zero); }

bool is_text(std::string_view) { return true; }

struct Type {
  bool (*accepts)(std::string_view text);
  const char* expected;
};

constexpr Type kText = {is_text, "text"};
constexpr Type kNodes = {is_node_range, "N or MIN:MAX, integers from 1 with MIN at most MAX"};
constexpr Type kProcesses = {is_process_count, "auto, cpu or an integer from 1"};
constexpr Type kFromZero = {from_zero, "an integer from 0"};
constexpr Type kPort = {is_port, "an integer from 0 to 65535"};
constexpr Type kSeconds = {is_seconds, "a number of seconds"};
constexpr Type kStartMethod = {is_start_method, "spawn, fork or forkserver"};
constexpr Type kStreams = {is_redirection, "0, 1, 2 or 3, or LOCAL_RANK:N,... with N from 0 to 3"};
constexpr Type kRanks = {is_rank_list, "local ranks, separated by commas"};

struct Row {
  const char* name;
  char letter;  // 0: none
  Value value;  // nullptr: a switch
  Switch on;
  Type type;
  const char* placeholder;
  const char* help;
  const char* unused;    // what is done instead; nullptr: the flag works
  bool variable = true;  // whether PET_NAME sets it
};

constexpr Row value(const char* name, Value member, Type type, const char* placeholder,
                    const char* help, const char* unused = nullptr, char letter = 0) {
  return {name, letter, member, nullptr, type, placeholder, help, unused};
}

constexpr Row without_variable(Row row) {
  row.variable = false;
  return row;
}

constexpr Row on_off(const char* name, Switch member, const char* help, char letter = 0,
                     const char* unused = nullptr) {
  return {name, letter, nullptr, member, kText, "", help, unused};
}

using Options = TorchrunOptions;
constexpr Row kRows[] = {
    value("nnodes", &Options::nnodes, kNodes, "N", "Number of hosts: N or MIN:MAX"),
    value("nproc-per-node", &Options::nproc_per_node, kProcesses, "N",
          "Processes on this host: a number; auto or cpu: one per NUMA node"),
    value("rdzv-backend", &Options::rdzv_backend, kText, "NAME",
          "static: the host of --node-rank 0 serves the rendezvous; c10d: the host that "
          "--rdzv-endpoint names"),
    value("rdzv-endpoint", &Options::rdzv_endpoint, kText, "HOST[:PORT]",
          "Address of the rendezvous"),
    value("rdzv-id", &Options::rdzv_id, kText, "ID", "ID of the job, the same on all hosts"),
    value("rdzv-conf", &Options::rdzv_conf, kText, "KEY=VALUE,...",
          "Settings of the rendezvous; tls=true encrypts all traffic of the job"),
    on_off("standalone", &Options::standalone, "One host, with a rendezvous on a free port"),
    value("max-restarts", &Options::max_restarts, kFromZero, "N",
          "Restarts of processes of this host before the job fails"),
    value("monitor-interval", &Options::monitor_interval, kSeconds, "SECONDS", "No effect",
          "the kernel reports the exit of a process at once"),
    value("start-method", &Options::start_method, kStartMethod, "NAME", "No effect",
          "each process starts the program anew"),
    value("event-log-handler", &Options::event_log_handler, kText, "NAME", "No effect",
          "events are lines of the log"),
    value("role", &Options::role, kText, "NAME",
          "Name of the processes, printed before each line of their output"),
    on_off("module", &Options::module, "The script is a Python module", 'm'),
    on_off("no-python", &Options::no_python, "The script is a program"),
    on_off("run-path", &Options::run_path, "The script is a path"),
    value("log-dir", &Options::log_dir, kText, "DIRECTORY",
          "Directory of the files of --redirects and --tee"),
    value("redirects", &Options::redirects, kStreams, "N",
          "Output that goes to files instead: 1 standard output, 2 standard error, 3 both; or "
          "LOCAL_RANK:N,...",
          nullptr, 'r'),
    value("tee", &Options::tee, kStreams, "N", "Output that goes to files too, as --redirects",
          nullptr, 't'),
    value("local-ranks-filter", &Options::local_ranks_filter, kRanks, "RANK,...",
          "Local ranks whose output is shown"),
    value("node-rank", &Options::node_rank, kFromZero, "N", "Rank of this host"),
    value("master-addr", &Options::master_addr, kText, "HOST",
          "Host of the rendezvous of the backend static"),
    value("master-port", &Options::master_port, kPort, "PORT",
          "Port of the rendezvous of the backend static"),
    value("local-addr", &Options::local_addr, kText, "ADDRESS",
          "Address of this host that the other hosts connect to"),
    without_variable(value("logs-specs", &Options::logs_specs, kText, "NAME", "No effect",
                           "it names a Python plug-in; --log-dir, --redirects and --tee work")),
    without_variable(value("numa-binding", &Options::numa_binding, kText, "NAME", "No effect",
                           "--nproc-per-node auto binds one process to each NUMA node")),
    value("signals-to-handle", &Options::signals_to_handle, kText, "NAME,...", "No effect",
          "SIGTERM and SIGINT stop the processes"),
    value("shutdown-timeout", &Options::shutdown_timeout, kFromZero, "SECONDS",
          "Time that the processes have to stop before they are killed; 30 without the flag"),
    value("log-line-prefix-template", &Options::log_line_prefix_template, kText, "TEXT",
          "No effect", "each line begins with role, host and local rank"),
    value("duplicate-stdout-filters", &Options::duplicate_stdout_filters, kText, "TEXT,...",
          "No effect", "--tee and --redirects store the whole output"),
    value("duplicate-stderr-filters", &Options::duplicate_stderr_filters, kText, "TEXT,...",
          "No effect", "--tee and --redirects store the whole output"),
    on_off("virtual-local-rank", &Options::virtual_local_rank, "No effect", 0, "it is for GPUs"),
    without_variable(on_off("use-env", &Options::use_env, "No effect", 0,
                            "processes always have their rank in variables")),
    on_off("help", &Options::help, "Print this help", 'h'),
};

std::string normal_form(std::string_view name) {
  std::string result(name);
  std::ranges::replace(result, '_', '-');
  return result;
}

std::string variable_of(const Row& row) {
  std::string result = "PET_";
  for (const char* c = row.name; *c != 0; ++c)
    result += *c == '-' ? '_' : static_cast<char>(*c - ('a' <= *c && *c <= 'z' ? 'a' - 'A' : 0));
  return result;
}

Error refuse(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

// A flag of either table.
struct Flag {
  const Row* row = nullptr;
  const ExtraFlag* extra = nullptr;
  std::string name() const { return row != nullptr ? row->name : extra->name; }
  bool takes_value() const {
    return row != nullptr ? row->value != nullptr : !extra->value.empty();
  }
};

class Parser {
 public:
  Parser(TorchrunOptions& options, std::span<const ExtraFlag> extra, bool accept_unknown)
      : options_(options), accept_unknown_(accept_unknown) {
    for (const Row& row : kRows) flags_.push_back({.row = &row});
    for (const ExtraFlag& flag : extra) flags_.push_back({.extra = &flag});
  }

  // Takes the flag at the front of the words that begin at `i`, and moves `i` behind it.
  Status take(const std::vector<std::string>& words, std::size_t& i) const {
    const std::string& word = words[i++];
    std::string name;
    std::optional<std::string> given;
    Result<Flag> flag =
        word.starts_with("--") ? find_long(word, name, given) : find_letter(word, name, given);
    if (!flag.ok()) return flag.error();
    if (!flag->takes_value()) {
      if (given)
        return refuse(fmt::format("{}: found the value \"{}\", expected none", name, *given));
      set_switch(*flag);
      return {};
    }
    if (!given) {
      if (i == words.size() || is_flag(words[i]))
        return refuse(
            fmt::format("{}: found no value, expected {}", name,
                        flag->row != nullptr ? flag->row->type.expected : flag->extra->value));
      given = words[i++];
    }
    if (flag->extra != nullptr) {
      flag->extra->set(*given);
      return {};
    }
    return set(*flag->row, name, *given);
  }

  Status read_variables(const GetVariable& environment) const {
    for (const Row& row : kRows) {
      if (!row.variable) continue;
      const std::string name = variable_of(row);
      const std::string found = environment(name.c_str());
      if (found.empty() || !unknown_variable(found).empty()) continue;
      if (row.value != nullptr) {
        if (Status status = set(row, name, found); !status.ok()) return status;
        continue;
      }
      const auto number = parse_number<std::int64_t>(found);
      if (!number) return refuse(fmt::format("{}: found \"{}\", expected 0 or 1", name, found));
      options_.*row.on = *number != 0;
    }
    return {};
  }

  // A negative number is a value.
  static bool is_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' && !('0' <= word[1] && word[1] <= '9');
  }

 private:
  Result<Flag> find_long(const std::string& word, std::string& name,
                         std::optional<std::string>& given) const {
    const std::size_t equals = word.find('=');
    name = word.substr(0, equals);
    if (equals != std::string::npos) given = word.substr(equals + 1);
    const std::string wanted = normal_form(name.substr(2));
    std::vector<Flag> found;
    for (const Flag& flag : flags_) {
      if (flag.name() == wanted) return flag;
      if (flag.name().starts_with(wanted)) found.push_back(flag);
    }
    if (found.size() == 1) return found.front();
    if (found.size() > 1)
      return refuse(fmt::format("{}: ambiguous flag, expected --{} or --{}", name, found[0].name(),
                                found[1].name()));
    std::vector<std::string> known;
    for (const Flag& flag : flags_) known.push_back("--" + flag.name());
    return refuse(
        fmt::format("{}: unknown flag{}", name, did_you_mean(name, {known.begin(), known.end()})));
  }

  Result<Flag> find_letter(const std::string& word, std::string& name,
                           std::optional<std::string>& given) const {
    name = word.substr(0, 2);
    if (word.size() > 2) given = word.substr(word[2] == '=' ? 3 : 2);
    for (const Flag& flag : flags_)
      if (flag.row != nullptr && flag.row->letter == word[1]) return flag;
    return refuse(fmt::format("{}: unknown flag", name));
  }

  void set_switch(const Flag& flag) const {
    if (flag.extra != nullptr) flag.extra->set("");
    if (flag.row != nullptr) options_.*flag.row->on = true;
  }

  Status set(const Row& row, const std::string& where, const std::string& text) const {
    const bool unknown = accept_unknown_ && !unknown_variable(text).empty();
    if (!unknown && !row.type.accepts(text))
      return refuse(fmt::format("{}: found \"{}\", expected {}", where, text, row.type.expected));
    if (text.empty()) {
      (options_.*row.value).reset();
    } else {
      options_.*row.value = text;
    }
    return {};
  }

  TorchrunOptions& options_;
  const bool accept_unknown_;
  std::vector<Flag> flags_;
};

std::string help_line(const std::string& flag, const std::string& text) {
  return fmt::format("  {:<30} {}\n", flag, text);
}

}  // namespace

Result<TorchrunOptions> take_torchrun_options(std::vector<std::string>& words,
                                              const GetVariable& environment,
                                              std::span<const ExtraFlag> extra,
                                              bool accept_unknown) {
  TorchrunOptions options;
  const Parser parser(options, extra, accept_unknown);
  if (const Status status = parser.read_variables(environment); !status.ok()) return status.error();
  std::size_t i = 0;
  while (i < words.size() && words[i] != "--" && Parser::is_flag(words[i]) && !options.help)
    if (const Status status = parser.take(words, i); !status.ok()) return status.error();
  if (i < words.size() && words[i] == "--") ++i;
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
  return options;
}

std::vector<std::string> unused_options(const TorchrunOptions& options) {
  std::vector<std::string> sentences;
  for (const Row& row : kRows)
    if (row.unused != nullptr &&
        (row.value != nullptr ? (options.*row.value).has_value() : options.*row.on))
      sentences.push_back(fmt::format("--{} has no effect: {}", row.name, row.unused));
  return sentences;
}

std::string torchrun_help(std::span<const ExtraFlag> extra) {
  std::string text;
  for (const Row& row : kRows) {
    std::string flag = row.letter != 0 ? fmt::format("-{}, --{}", row.letter, row.name)
                                       : fmt::format("    --{}", row.name);
    if (row.value != nullptr) flag += fmt::format(" {}", row.placeholder);
    text += help_line(flag, row.help);
  }
  for (const ExtraFlag& flag : extra)
    text +=
        help_line(fmt::format("    --{}{}{}", flag.name, flag.value.empty() ? "" : " ", flag.value),
                  flag.help);
  return text;
}

}  // namespace tilewright::launch
