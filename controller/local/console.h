// What the user of `up` sees: the workers' lines with their names before them, our own notes, and
// on a terminal one line of progress that is drawn over and over below them.
#pragma once

#include <string>
#include <string_view>

#include "controller/local/coordinator.h"

namespace tilewright::local {

// The progress line, cut to `width` columns: a bar, step, epoch, loss, learning rate, examples/s,
// tokens/s, GFLOP/s, time left. What is not known is left out.
std::string progress_line(const reconcile::RendezvousView& live, int width);

class Console {
 public:
  struct Options {
    int output = 1;    // workers' lines and notes
    int terminal = 2;  // the progress line; -1: none
    bool colour = false;
  };
  // The progress line where standard error is a terminal; colours where standard output is one,
  // unless NO_COLOR is set (no-color.org).
  static Options detect();

  explicit Console(Options options) : options_(options) {}
  ~Console() { clear_progress(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // "worker-1 | line"
  void worker_line(int index, std::string_view line);
  // "up       | text"
  void note(std::string_view text);
  void show_progress(const reconcile::RendezvousView& live);
  void clear_progress();

 private:
  void print(std::string_view prefix, int colour, std::string_view text);
  void draw();

  Options options_;
  std::string progress_;  // as last drawn; empty: none
};

}  // namespace tilewright::local
