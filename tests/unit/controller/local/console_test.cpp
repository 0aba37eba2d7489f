// The screen of `tilewright up`: which lines it shows, and how.
#include "controller/local/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <stdexcept>

#include "common/base/clock.h"
#include "common/base/file_descriptor.h"

namespace tilewright::local {
namespace {

// A pipe in place of the terminal.
class Screen {
 public:
  Screen() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe");
    reading_ = FileDescriptor(ends[0]);
    writing_ = FileDescriptor(ends[1]);
  }
  int fd() const { return writing_.get(); }
  // Returns the output since the previous take().
  std::string take() const {
    char buffer[8192];
    const ssize_t size = read(reading_.get(), buffer, sizeof(buffer));
    return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
  }

 private:
  FileDescriptor reading_, writing_;
};

policy::RendezvousView halfway() {
  policy::RendezvousView live;
  live.progress.step = 115;
  live.progress.total_steps = 230;
  live.progress.epoch_of_data = 5;
  live.progress.loss = 0.4326;
  live.progress.learning_rate = 5e-5;
  live.progress.examples_per_second = 212.34;
  live.progress.tokens_per_second = 12345;
  live.eta_seconds = 18;
  live.gflops_per_second = 310.4;
  live.peak_gflops = 893;
  live.progress.phase = "training";
  return live;
}

std::string eta() { return "ETA " + format_duration(std::chrono::seconds(18)); }

std::string log_line(const std::string& level, const std::string& message) {
  return "2026-11-22T19:42:57.977 " + level + " " + message;
}

TEST(ProgressLine, ShowsAllKnownValues) {
  EXPECT_EQ(progress_line(halfway(), 200),
            "[########........]  50 %  step 115/230  epoch 5.00  loss 0.4326  lr 5.00e-05  "
            "212 examples/s  310 GFLOP/s (35 %)  " +
                eta());
}

TEST(ProgressLine, OmitsUnknownValues) {
  policy::RendezvousView live;
  live.progress.loss = live.progress.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(progress_line(live, 100), "");
  live.progress.phase = "loading";
  EXPECT_EQ(progress_line(live, 100), "loading");
  live.progress.total_steps = 10;
  live.progress.phase = "evaluating";
  EXPECT_EQ(progress_line(live, 100),
            "[................]   0 %  step 0/10  epoch 0.00  evaluating");
}

TEST(ProgressLine, DropsTheLeastImportantValuesOnANarrowTerminal) {
  EXPECT_EQ(progress_line(halfway(), 79),
            "[########........]  50 %  step 115/230  loss 0.4326  212 examples/s  " + eta());
  EXPECT_EQ(progress_line(halfway(), 41), "[########........]  50 %  step 115/230");
  for (int width = 0; width < 150; ++width) {
    EXPECT_LE(progress_line(halfway(), width).size(), static_cast<std::size_t>(width));
  }
}

TEST(ProgressLine, ShowsNoTimeLeftAfterTheLastStep) {
  policy::RendezvousView live;
  live.progress.step = live.progress.total_steps = 10;
  live.progress.loss = live.progress.learning_rate = std::numeric_limits<double>::quiet_NaN();
  live.eta_seconds = 0;
  EXPECT_EQ(progress_line(live, 100), "[################] 100 %  step 10/10  epoch 0.00");
}

TEST(ProgressLine, StaysWithinTheBarWhenTheStepExceedsTheTotal) {
  policy::RendezvousView live;
  live.progress.step = 11;
  live.progress.total_steps = 10;
  EXPECT_EQ(progress_line(live, 24), "[################] 100 %");
}

TEST(Wrap, BreaksAtSpacesAndIndents) {
  EXPECT_EQ(wrap("one two three", 4, 11), "one two\n    three");
  EXPECT_EQ(wrap("one two three", 4, 12), "one two\n    three");
  EXPECT_EQ(wrap("one two three", 4, 17), "one two three");
  EXPECT_EQ(wrap("one two three", 4, 0), "one two three");
  EXPECT_EQ(wrap("one  two", 0, 80), "one  two") << "spaces within a line are kept";
}

TEST(Wrap, KeepsLongWordsWhole) {
  EXPECT_EQ(wrap("a /very/long/path b", 2, 8), "a\n  /very/long/path\n  b");
  EXPECT_EQ(wrap("", 2, 8), "");
  EXPECT_EQ(wrap("grün grün", 0, 9), "grün grün") << "columns, not bytes";
}

// An undisturbed training of two workers, as rank 0 logs it.
void train(Console& console) {
  console.print("job", "mrpc: mrpc, 2 workers");
  console.worker_line(1, log_line("debug", "membership epoch 1: rank 1 of 2"));
  console.worker_line(0, log_line("info", "membership epoch 1: rank 0 of 2"));
  console.worker_line(0, log_line("info", "machine: AMD EPYC, 2 x 1 thread, avx512_bf16"));
  console.worker_line(0, log_line("info", "data: 642 examples"));
  console.worker_line(0, log_line("info", "kernels: forward amx"));
  console.worker_line(0, log_line("info", "step 1/2  epoch 0.50  loss 0.5000"));
  console.worker_line(0, log_line("info", "step 2/2  epoch 1.00  loss 0.4000"));
  console.worker_line(0, log_line("info", "output: out/mrpc"));
  console.worker_line(0, log_line("info", "output: SHA-256 0123"));
  console.worker_line(0, "***** train metrics *****");
  console.worker_line(0, "  epoch                    =        1.0");
  console.worker_line(0, "[worker 0.1]   train_loss = 0.4");
}

TEST(Console, ShowsTheSummaryOnATerminal) {
  const Screen screen;
  Console console({.output = screen.fd(), .terminal = true, .step_lines = false, .width = 80});
  EXPECT_FALSE(console.has_summary("output"));
  train(console);
  EXPECT_EQ(screen.take(),
            "job       mrpc: mrpc, 2 workers\n"
            "machine   AMD EPYC, 2 x 1 thread, avx512_bf16\n"
            "data      642 examples\n"
            "output    out/mrpc\n"
            "output    SHA-256 0123\n");
  EXPECT_TRUE(console.has_summary("output"));
}

TEST(Console, ShowsStepLinesWithoutATerminal) {
  const Screen screen;
  Console console({.output = screen.fd()});
  train(console);
  EXPECT_EQ(screen.take(),
            "job       mrpc: mrpc, 2 workers\n"
            "machine   AMD EPYC, 2 x 1 thread, avx512_bf16\n"
            "data      642 examples\n"
            "step      1/2  epoch 0.50  loss 0.5000\n"
            "step      2/2  epoch 1.00  loss 0.4000\n"
            "output    out/mrpc\n"
            "output    SHA-256 0123\n");
}

TEST(Console, ShowsEveryLineWithVerbose) {
  const Screen screen;
  Console console({.output = screen.fd(), .verbose = true});
  console.worker_line(0, log_line("info", "data: 642 examples"));
  console.worker_line(1, log_line("debug", "rank 1 of 2"));
  console.worker_line(1, log_line("warning", "slow"));
  EXPECT_EQ(screen.take(),
            "worker-0 | 2026-11-22T19:42:57.977 info data: 642 examples\n"
            "worker-1 | 2026-11-22T19:42:57.977 debug rank 1 of 2\n"
            "worker-1 | 2026-11-22T19:42:57.977 warning slow\n");
  EXPECT_TRUE(console.has_summary("data"));
}

TEST(Console, ShowsWarningsErrorsAndOtherOutputOfEveryWorker) {
  const Screen screen;
  Console console({.output = screen.fd()});
  console.worker_line(1, log_line("warning", "slow disk"));
  console.worker_line(12, "[worker 12.1] " + log_line("error", "no memory"));
  console.worker_line(0, log_line("critical", "broken"));
  console.worker_line(0, "terminate called");
  console.worker_line(2, "\033[31mred");
  EXPECT_EQ(screen.take(),
            "worker-1 | warning: slow disk\n"
            "worker-12 | error: no memory\n"
            "worker-0 | error: broken\n"
            "worker-0 | terminate called\n"
            "worker-2 | red\n");
}

// The message of the failure contains it, unless it is too long for the failure history.
TEST(Console, LeavesTheLastSentenceOfAWorkerToItsFailure) {
  const Screen screen;
  const std::string sentence = "tilewright-worker: --seed: found x, expected an integer";
  Console console({.output = screen.fd()});
  console.worker_line(0, sentence);
  EXPECT_EQ(screen.take(), "");
  console.worker_line(0, "tilewright-workers are busy");
  EXPECT_EQ(screen.take(), "worker-0 | tilewright-workers are busy\n");
  const std::string longer = sentence + std::string(300, 'x');
  console.worker_line(0, longer);
  EXPECT_EQ(screen.take(), "worker-0 | " + longer + "\n");
  Console verbose({.output = screen.fd(), .verbose = true});
  verbose.worker_line(0, sentence);
  EXPECT_EQ(screen.take(), "worker-0 | " + sentence + "\n");
}

TEST(Console, ShowsARepeatedSummaryLineOnce) {
  const Screen screen;
  Console console({.output = screen.fd()});
  for (const char* steps : {"training: 20 steps", "training: 20 steps", "training: 10 steps"}) {
    console.worker_line(0, log_line("info", steps));
  }
  EXPECT_EQ(screen.take(), "training  20 steps\ntraining  10 steps\n");
}

TEST(Console, ShowsAnOutputDirectoryBelowTheCurrentOneAsARelativePath) {
  const std::string below = (std::filesystem::current_path() / "output/job").string();
  EXPECT_EQ(display_path(below), "output/job");
  EXPECT_EQ(display_path("/elsewhere/output"), "/elsewhere/output");
  const Screen screen;
  Console console({.output = screen.fd()});
  console.worker_line(0, log_line("info", "output: " + below));
  EXPECT_EQ(screen.take(), "output    output/job\n");
}

TEST(Console, ColoursLabelsWorkersAndResults) {
  using Style = Console::Style;
  const Screen screen;
  Console console({.output = screen.fd(), .colour = true});
  console.print("data", "a");
  EXPECT_EQ(screen.take(), "\033[1;36mdata      \033[0ma\n");
  console.print("succeeded", "b", Style::kSuccess);
  EXPECT_EQ(screen.take(), "\033[1;36msucceeded \033[0m\033[32mb\033[0m\n");
  console.print("failed", "c", Style::kFailure);
  EXPECT_EQ(screen.take(), "\033[1;36mfailed    \033[0m\033[31mc\033[0m\n");
  console.worker_line(0, log_line("warning", "d"));
  EXPECT_EQ(screen.take(), "\033[36mworker-0 | \033[0m\033[33mwarning: d\033[0m\n");
  console.worker_line(1, "e");
  EXPECT_EQ(screen.take(), "\033[32mworker-1 | \033[0me\n");
}

TEST(Console, WrapsLinesToTheTerminal) {
  const Screen screen;
  const std::string words = "one two three four five six seven eight nine ten eleven";
  Console narrow({.output = screen.fd(), .terminal = true, .width = 50});
  narrow.print("data", words);
  EXPECT_EQ(screen.take(),
            "data      one two three four five six seven eight\n"
            "          nine ten eleven\n");
  Console wide({.output = screen.fd(), .terminal = true, .width = 500});
  wide.print("data", words + " " + words + " " + words);
  const std::string text = screen.take();
  EXPECT_LE(text.find('\n'), 120U) << "at most 120 columns";
}

TEST(Console, KeepsTheBarBelowTheOtherLines) {
  const Screen screen;
  Console console({.output = screen.fd(), .progress = screen.fd(), .width = 200});
  console.show_progress(halfway());
  const std::string drawn = screen.take();
  EXPECT_TRUE(drawn.starts_with("\r\033[K[####"));
  console.show_progress(halfway());
  EXPECT_EQ(screen.take(), "") << "an unchanged bar is not drawn again";
  EXPECT_LE(drawn.size(), 124U) << "120 columns";
  console.worker_line(1, "hello");
  EXPECT_EQ(screen.take(), "\r\033[Kworker-1 | hello\n" + drawn);
  console.clear_progress();
  EXPECT_EQ(screen.take(), "\r\033[K");
  console.print("done", "x");
  EXPECT_EQ(screen.take(), "done      x\n");
}

TEST(Console, DrawsNoBarWithoutATerminal) {
  const Screen screen;
  Console console({.output = screen.fd()});
  console.show_progress(halfway());
  EXPECT_EQ(screen.take(), "");
}

}  // namespace
}  // namespace tilewright::local
