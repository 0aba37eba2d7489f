// What users see.
#include "controller/local/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/file_descriptor.h"

namespace tilewright::local {
namespace {

// A pipe in place of the screen.
class Screen {
 public:
  Screen() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe");
    reading_ = FileDescriptor(ends[0]);
    writing_ = FileDescriptor(ends[1]);
  }
  int fd() const { return writing_.get(); }
  std::string take() const {
    char buffer[4096];
    const ssize_t size = read(reading_.get(), buffer, sizeof(buffer));
    return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
  }

 private:
  FileDescriptor reading_, writing_;
};

reconcile::RendezvousView halfway() {
  reconcile::RendezvousView live;
  live.progress.step = 115;
  live.progress.total_steps = 230;
  live.progress.epoch = 5;
  live.progress.loss = 0.4326;
  live.progress.learning_rate = 5e-5;
  live.progress.examples_per_second = 212.34;
  live.progress.tokens_per_second = 12345;
  live.progress.eta_seconds = 18;
  live.gflops_per_second = 310.4;
  live.peak_gflops = 893;
  live.phase = "training";
  return live;
}

TEST(ProgressLine, TellsAllThatIsKnown) {
  EXPECT_EQ(progress_line(halfway(), 200),
            "[##########..........]  50 %  step 115/230  epoch 5.00  loss 0.4326  lr 5.00e-05  "
            "212 examples/s  12.3k tokens/s  310 GFLOP/s (35 %)  ETA " +
                to_words(std::chrono::seconds(18)));
}

TEST(ProgressLine, LeavesOutWhatIsNotKnown) {
  reconcile::RendezvousView live;
  EXPECT_EQ(progress_line(live, 100), "");
  live.phase = "loading";
  EXPECT_EQ(progress_line(live, 100), "loading");
  live.progress.total_steps = 10;
  live.phase = "evaluating";
  EXPECT_EQ(progress_line(live, 100),
            "[....................]   0 %  step 0/10  epoch 0.00  evaluating");
}

TEST(ProgressLine, FitsTheTerminal) {
  for (const int width : {1, 10, 40, 79}) {
    EXPECT_EQ(progress_line(halfway(), width).size(), static_cast<std::size_t>(width));
  }
}

TEST(ProgressLine, StaysABarWhereTheNumbersAreOdd) {
  reconcile::RendezvousView live;
  live.progress.step = 11;
  live.progress.total_steps = 10;
  EXPECT_EQ(progress_line(live, 28), "[####################] 100 %");
}

TEST(Console, PrefixesLines) {
  const Screen screen;
  Console console({screen.fd(), -1, false});
  console.worker_line(0, "hello");
  console.worker_line(12, "\033[31mred");
  console.note("done");
  console.show_progress(halfway());
  EXPECT_EQ(screen.take(), "worker-0 | hello\nworker-12 | red\nup       | done\n");
}

TEST(Console, ColoursPrefixesByWorker) {
  const Screen screen;
  Console console({screen.fd(), -1, true});
  console.worker_line(0, "a");
  console.worker_line(1, "b");
  EXPECT_EQ(screen.take(), "\033[36mworker-0 |\033[0m a\n\033[32mworker-1 |\033[0m b\n");
}

TEST(Console, KeepsTheProgressLineBelowTheOthers) {
  const Screen screen;
  Console console({screen.fd(), screen.fd(), false});
  console.show_progress(halfway());
  const std::string drawn = screen.take();
  EXPECT_TRUE(drawn.starts_with("\r\033[K[####"));
  console.worker_line(1, "hello");
  EXPECT_EQ(screen.take(), "\r\033[Kworker-1 | hello\n" + drawn);
  console.clear_progress();
  EXPECT_EQ(screen.take(), "\r\033[K");
  console.note("done");
  EXPECT_EQ(screen.take(), "up       | done\n");
}

}  // namespace
}  // namespace tilewright::local
