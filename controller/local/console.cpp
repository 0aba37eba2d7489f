#include "controller/local/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/strings.h"
#include "common/contract/log_lines.h"
#include "common/contract/pod_paths.h"
#include "common/contract/training_report.h"
#include "controller/local/log_capture.h"

namespace tilewright::local {
namespace {

constexpr int kDefaultWidth = 100;  // of a terminal that does not report its width
constexpr int kMaxWidth = 120;      // longer lines are hard to read
constexpr int kMinWidth = 40;       // narrower terminals wrap lines themselves
constexpr int kBarWidth = 16;       // with step, loss, examples/s and ETA it fits into 80 columns
constexpr int kLabelWidth = 10;     // "baselines", the longest label, and a space
constexpr const char* kClearLine = "\r\033[K";

// SGR parameters of ECMA-48.
constexpr const char* kLabelColour = "1;36";  // bold cyan
// Readable on light and dark backgrounds: cyan, green, magenta, yellow, blue.
constexpr std::array kWorkerColours = {"36", "32", "35", "33", "34"};

const char* colour_of(Console::Style style) {
  switch (style) {
    case Console::Style::kWarning:
      return "33";  // yellow
    case Console::Style::kFailure:
      return "31";  // red
    case Console::Style::kSuccess:
      return "32";  // green
    case Console::Style::kPlain:
      break;
  }
  return "";
}

std::string coloured(const char* colour, std::string_view text) {
  if (*colour == '\0') return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", colour, text);
}

int terminal_width(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultWidth;
}

// Number of columns of UTF-8 text: one per code point.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & '\xC0') != '\x80'; }));
}

std::string format_number(double number) {
  if (number >= 10'000) return fmt::format("{:.1f}k", number / 1000);
  return fmt::format("{:.{}f}", number, number >= 100 ? 0 : 1);
}

struct Field {
  int importance;  // fields of the lowest importance are dropped first
  std::string text;
};

std::string join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

// The sentence with which a worker's program ends, if the failure history keeps it whole.
bool is_last_sentence(std::string_view text) {
  return text.starts_with(kWorkerProgram) &&
         text.substr(std::string_view(kWorkerProgram).size()).starts_with(": ") &&
         text.size() <= api::kFailureLogLineBytes;
}

}  // namespace

std::string display_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  const std::filesystem::path relative =
      absolute.lexically_relative(std::filesystem::current_path(error));
  const bool below = !error && !relative.empty() && *relative.begin() != "..";
  return (below ? relative : absolute).string();
}

std::string progress_line(const policy::RendezvousView& live, int width) {
  const rendezvous::Progress& progress = live.progress;
  std::vector<Field> fields;
  if (progress.total_steps > 0) {
    const double fraction = std::clamp(
        static_cast<double>(progress.step) / static_cast<double>(progress.total_steps), 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(fraction * kBarWidth);
    fields.push_back({9, fmt::format("[{}{}] {:3.0f} %", std::string(filled, '#'),
                                     std::string(kBarWidth - filled, '.'), fraction * 100)});
    fields.push_back({8, fmt::format("step {}/{}", progress.step, progress.total_steps)});
    fields.push_back({3, fmt::format("epoch {:.2f}", progress.epoch_of_data)});
    if (std::isfinite(progress.loss)) {
      fields.push_back({5, fmt::format("loss {:.4f}", progress.loss)});
    }
    if (std::isfinite(progress.learning_rate)) {
      fields.push_back({1, fmt::format("lr {:.2e}", progress.learning_rate)});
    }
    if (progress.examples_per_second > 0) {
      fields.push_back(
          {4, fmt::format("{} examples/s", format_number(progress.examples_per_second))});
    }
    if (live.gflops_per_second > 0) {
      std::string speed = fmt::format("{:.0f} GFLOP/s", live.gflops_per_second);
      if (live.peak_gflops > 0) {
        speed += fmt::format(" ({:.0f} %)", 100 * live.gflops_per_second / live.peak_gflops);
      }
      fields.push_back({2, std::move(speed)});
    }
    if (live.eta_seconds && progress.step < progress.total_steps) {
      fields.push_back(
          {7, fmt::format("ETA {}", format_duration(std::chrono::seconds(*live.eta_seconds)))});
    }
  }
  if (!progress.phase.empty() && progress.phase != training_report::kTrainingPhase) {
    fields.push_back({6, progress.phase});
  }
  const auto limit = static_cast<std::size_t>(std::max(width, 0));
  while (fields.size() > 1 && columns(join(fields)) > limit) {
    fields.erase(std::ranges::min_element(fields, {}, &Field::importance));
  }
  std::string line = join(fields);
  line.resize(utf8_prefix_length(line, limit));
  return line;
}

std::string wrap(std::string_view text, int indent, int width) {
  std::string result;
  std::size_t column = static_cast<std::size_t>(indent);
  const auto limit = static_cast<std::size_t>(width);
  bool line_has_word = false;
  while (!text.empty()) {
    // The next word and the spaces before it. A line break replaces these spaces.
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (width > 0 && line_has_word && !word.empty() && column + begin + columns(word) > limit) {
      result += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
      result += word;
      column = static_cast<std::size_t>(indent) + columns(word);
    } else {
      result += text.substr(0, end);
      column += begin + columns(word);
    }
    line_has_word = true;
    text.remove_prefix(end);
  }
  return result;
}

Console::Options Console::detect(bool verbose) {
  Options options;
  const bool dumb = environment_variable("TERM") == "dumb";
  options.verbose = verbose;
  options.terminal = isatty(STDOUT_FILENO) == 1;
  options.colour = options.terminal && !dumb && environment_variable("NO_COLOR").empty();
  if (isatty(STDERR_FILENO) == 1 && !dumb) options.progress = STDERR_FILENO;
  options.step_lines = !options.terminal || options.progress < 0;
  return options;
}

void Console::worker_line(int index, std::string_view line) {
  // Escape sequences of the worker could move the cursor. The log file keeps them.
  const std::string text = strip_terminal_codes(line);
  const std::optional<LogLine> log_line = parse_log_line(text);
  // The summary lines show the results.
  if (!options_.verbose && (is_last_sentence(text) || log_lines::is_metrics_line(text))) return;
  if (options_.verbose || !log_line) {
    print_worker(index, text, Style::kPlain);
  } else if (log_line->level >= spdlog::level::err) {
    print_worker(index, fmt::format("error: {}", log_line->message), Style::kFailure);
  } else if (log_line->level == spdlog::level::warn) {
    print_worker(index, fmt::format("warning: {}", log_line->message), Style::kWarning);
  }
  if (log_line && log_line->level == spdlog::level::info) print_summary(log_line->message);
}

void Console::print_summary(std::string_view message) {
  for (const std::string_view name : log_lines::kSummaryNames) {
    if (!message.starts_with(name) || !message.substr(name.size()).starts_with(": ")) continue;
    names_.emplace(name);
    if (options_.verbose || !summary_.emplace(message).second) return;
    const std::string_view text = message.substr(name.size() + 2);
    // The worker knows only the absolute path of its output directory.
    return print(name, name == log_lines::kOutput && text.starts_with('/') ? display_path(text)
                                                                           : std::string(text));
  }
  if (!options_.verbose && options_.step_lines && message.starts_with(log_lines::kStep) &&
      message.substr(log_lines::kStep.size()).starts_with(' ')) {
    print(log_lines::kStep, message.substr(log_lines::kStep.size() + 1));
  }
}

void Console::print_worker(int index, std::string_view text, Style style) {
  const std::size_t colour = static_cast<std::size_t>(index) % kWorkerColours.size();
  write_line(fmt::format("worker-{} | ", index), kWorkerColours[colour], text, style);
}

void Console::print(std::string_view label, std::string_view text, Style style) {
  write_line(fmt::format("{:<{}}", label, kLabelWidth), kLabelColour, text, style);
}

void Console::write_line(std::string_view prefix, const char* prefix_colour, std::string_view text,
                         Style style) {
  const int text_width = options_.terminal ? width() : 0;
  std::string line = wrap(text, static_cast<int>(prefix.size()), text_width);
  line = options_.colour ? coloured(prefix_colour, prefix) + coloured(colour_of(style), line)
                         : std::string(prefix) + line;
  if (!progress_.empty()) output_.write(options_.progress, kClearLine);
  output_.write(options_.output, line + '\n');
  if (!progress_.empty()) draw();
}

int Console::width() const {
  const int width = options_.width > 0 ? options_.width : terminal_width(options_.output);
  return std::clamp(width, kMinWidth, kMaxWidth);
}

void Console::show_progress(const policy::RendezvousView& live) {
  if (options_.progress < 0) return;
  // The last column stays free: some terminals wrap a line that fills it.
  const int width = options_.width > 0 ? options_.width : terminal_width(options_.progress);
  std::string line = progress_line(live, std::min(width, kMaxWidth) - 1);
  if (line == progress_) return;
  progress_ = std::move(line);
  draw();
}

void Console::draw() { output_.write(options_.progress, kClearLine + progress_); }

void Console::clear_progress() {
  if (progress_.empty()) return;
  output_.write(options_.progress, kClearLine);
  progress_.clear();
}

}  // namespace tilewright::local
