// The screen of `tilewright up`: a short summary, a progress bar on a terminal, the warnings and
// errors of the workers, and with --verbose every line that a worker writes.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "common/base/output_queue.h"
#include "controller/local/coordinator.h"

namespace tilewright::local {

// Relative to the current directory for a path below it, else absolute.
std::string display_path(const std::filesystem::path& path);

// The progress bar: a bar, step, epoch, loss, learning rate, examples/s, GFLOP/s, time left, and
// the phase if it is not training. Unknown values are omitted. Drops the least important values
// until the line fits into `width` columns; cuts it if it still does not fit.
std::string progress_line(const policy::RendezvousView& live, int width);

// Breaks `text` at spaces into lines of at most `width` columns and indents all but the first by
// `indent` columns, which count towards `width`. Words that are longer than a line stay whole.
// Width 0: one line.
std::string wrap(std::string_view text, int indent, int width);

class Console {
 public:
  struct Options {
    int output = 1;          // descriptor of the summary and the workers' lines
    int progress = -1;       // descriptor of the progress bar; -1: no bar
    bool terminal = false;   // `output` is a terminal: its lines are wrapped to its width
    bool step_lines = true;  // prints the step lines of rank 0
    bool colour = false;     // uses ANSI colours on `output`
    bool verbose = false;    // prints every line of every worker, in place of rank 0's summary
    int width = 0;           // columns of the terminal; 0: queries the terminal
  };
  // Draws the bar if standard error is a terminal; prints step lines if there is no bar or standard
  // output goes elsewhere; uses colours if standard output is a terminal and NO_COLOR is not set
  // (no-color.org). TERM=dumb: no bar, no colours.
  static Options detect(bool verbose);

  // How a line looks on a terminal with colours.
  enum class Style { kPlain, kWarning, kFailure, kSuccess };

  explicit Console(Options options) : options_(options) {}
  ~Console() { clear_progress(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Handles a line of worker `index`, as the worker wrote it:
  //   warning, error      printed as `worker-1 | warning: text`
  //   summary, step line  printed as `data      text` (common/contract/log_lines.h)
  //   other log lines     not printed; the log file has them
  //   last sentence       not printed: `tilewright-worker: text`; the worker's failure contains it
  //   any other text      printed as `worker-1 | text`: an abort or a user's program
  // A summary line is printed once: a restarted worker repeats those that did not change.
  void worker_line(int index, std::string_view line);
  // Prints `label     text`.
  void print(std::string_view label, std::string_view text, Style style = Style::kPlain);
  // Whether a worker has written a summary line of this name.
  bool has_summary(std::string_view name) const { return names_.contains(std::string(name)); }
  bool verbose() const { return options_.verbose; }

  void show_progress(const policy::RendezvousView& live);
  void clear_progress();

 private:
  // Prints a summary line, or a step line, and ignores any other.
  void print_summary(std::string_view message);
  void print_worker(int index, std::string_view text, Style style);
  void write_line(std::string_view prefix, const char* prefix_colour, std::string_view text,
                  Style style);
  int width() const;
  void draw();

  Options options_;
  OutputQueue output_;  // a slow reader must not stop the training; log files have every line
  std::set<std::string> names_;    // names of the summary lines so far
  std::set<std::string> summary_;  // summary lines that were printed
  std::string progress_;           // the bar as last drawn; empty: none
};

}  // namespace tilewright::local
