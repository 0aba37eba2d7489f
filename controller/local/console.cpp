#include "controller/local/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/contract/reported.h"
#include "controller/local/log_capture.h"

namespace tilewright::local {
namespace {

constexpr int kDefaultWidth = 100;
constexpr int kBarWidth = 20;
// Of ECMA-48, told apart on light and dark grounds: cyan, green, magenta, yellow, blue.
constexpr std::array kWorkerColours = {36, 32, 35, 33, 34};
constexpr int kNoColour = 0;
constexpr const char* kClearLine = "\r\033[K";

// A reader that is gone or slow must not stop the training; what it misses is in the log files.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(fd, text.data(), text.size());
    if (size <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
}

int width_of(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultWidth;
}

std::string in_short(double number) {
  if (number >= 10'000) return fmt::format("{:.1f}k", number / 1000);
  return fmt::format("{:.{}f}", number, number >= 100 ? 0 : 1);
}

}  // namespace

std::string progress_line(const reconcile::RendezvousView& live, int width) {
  const reconcile::Progress& progress = live.progress;
  std::string line;
  if (progress.total_steps > 0) {
    const double share = std::clamp(
        static_cast<double>(progress.step) / static_cast<double>(progress.total_steps), 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(share * kBarWidth);
    line = fmt::format("[{}{}] {:3.0f} %  step {}/{}  epoch {:.2f}", std::string(filled, '#'),
                       std::string(kBarWidth - filled, '.'), share * 100, progress.step,
                       progress.total_steps, progress.epoch);
    if (progress.loss) line += fmt::format("  loss {:.4f}", *progress.loss);
    if (progress.learning_rate) line += fmt::format("  lr {:.2e}", *progress.learning_rate);
    if (progress.examples_per_second > 0) {
      line += fmt::format("  {} examples/s", in_short(progress.examples_per_second));
    }
    if (progress.tokens_per_second > 0) {
      line += fmt::format("  {} tokens/s", in_short(progress.tokens_per_second));
    }
    if (live.gflops_per_second > 0) {
      line += fmt::format("  {:.0f} GFLOP/s", live.gflops_per_second);
      if (live.peak_gflops > 0) {
        line += fmt::format(" ({:.0f} %)", 100 * live.gflops_per_second / live.peak_gflops);
      }
    }
    if (progress.eta_seconds) {
      line += fmt::format("  ETA {}", to_words(std::chrono::seconds(*progress.eta_seconds)));
    }
  }
  if (!live.phase.empty() && live.phase != reported::kTrainingPhase) {
    line += (line.empty() ? "" : "  ") + live.phase;
  }
  if (width > 0 && line.size() > static_cast<std::size_t>(width)) {
    line.resize(static_cast<std::size_t>(width));
  }
  return line;
}

Console::Options Console::detect() {
  Options options;
  options.colour = isatty(options.output) == 1 && environment_variable("NO_COLOR").empty();
  if (isatty(options.terminal) != 1) options.terminal = -1;
  return options;
}

void Console::worker_line(int index, std::string_view line) {
  const std::size_t colour = static_cast<std::size_t>(index) % kWorkerColours.size();
  // Escape sequences of the worker could move the cursor; its log file has them.
  print(fmt::format("worker-{}", index), kWorkerColours[colour], printable(line));
}

void Console::note(std::string_view text) { print("up", kNoColour, text); }

void Console::print(std::string_view prefix, int colour, std::string_view text) {
  std::string line;
  // Text that came before the line is drawn must not run into it.
  if (!progress_.empty()) write_all(options_.terminal, kClearLine);
  if (options_.colour && colour != kNoColour) {
    line = fmt::format("\033[{}m{:<8} |\033[0m {}\n", colour, prefix, text);
  } else {
    line = fmt::format("{:<8} | {}\n", prefix, text);
  }
  write_all(options_.output, line);
  if (!progress_.empty()) draw();
}

void Console::show_progress(const reconcile::RendezvousView& live) {
  if (options_.terminal < 0) return;
  // One column is left free: a full line would wrap on some terminals.
  progress_ = progress_line(live, width_of(options_.terminal) - 1);
  if (!progress_.empty()) draw();
}

void Console::draw() { write_all(options_.terminal, kClearLine + progress_); }

void Console::clear_progress() {
  if (progress_.empty()) return;
  write_all(options_.terminal, kClearLine);
  progress_.clear();
}

}  // namespace tilewright::local
