#include "common/base/output_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "common/base/file_descriptor.h"
#include "common/base/files.h"

namespace tilewright {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    reader = FileDescriptor(ends[0]);
    writer = FileDescriptor(ends[1]);
  }
  // Reads until the text ends with `end`; fails the test after a minute without it.
  std::string read_until(std::string_view end) const {
    std::string text;
    while (!text.ends_with(end)) {
      const std::string part = read_some();
      if (part.empty()) {
        ADD_FAILURE() << "no \"" << end << "\" within a minute or before the end";
        break;
      }
      text += part;
    }
    return text;
  }
  // Reads until every writer has closed the pipe.
  std::string read_until_closed() const {
    std::string text;
    for (std::string part; !(part = read_some()).empty();) text += part;
    return text;
  }
  // Empty at the end, or, with a failure of the test, after a minute without text.
  std::string read_some() const {
    pollfd polled{reader.get(), POLLIN, 0};
    char buffer[65536];
    if (poll(&polled, 1, 60'000) != 1) {
      ADD_FAILURE() << "no text within a minute";
      return {};
    }
    const ssize_t size = read(reader.get(), buffer, sizeof buffer);
    return {buffer, size > 0 ? static_cast<std::size_t>(size) : 0};
  }
  FileDescriptor reader, writer;
};

std::size_t lines_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(OutputQueue, WritesToAFileBeforeTheCallReturns) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / fmt::format("output_queue.{}", getpid());
  const FileDescriptor file(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  OutputQueue queue;
  queue.write(file.get(), "first\n");
  queue.write(file.get(), "second\n");
  EXPECT_EQ(read_file(path, 100, ExitCode::kInternal).or_throw(), "first\nsecond\n");
  std::filesystem::remove(path);
}

TEST(OutputQueue, DoesNotWaitForAReader) {
  const Pipe pipe;
  OutputQueue queue;
  const std::string line = std::string(99, 'x') + "\n";
  constexpr std::size_t kLines = 30'000;
  for (std::size_t i = 0; i < kLines; ++i) queue.write(pipe.writer.get(), line);
  // What fits neither into the pipe nor into the queue is dropped, and a line says how much it was.
  const std::size_t capacity = static_cast<std::size_t>(fcntl(pipe.reader.get(), F_GETPIPE_SZ));
  std::string text;
  while (text.size() < OutputQueue::kMaxWaitingBytes + capacity / 2) {
    text += pipe.read_until("\n");
    ASSERT_FALSE(HasFailure());
  }
  queue.write(pipe.writer.get(), "last\n");
  text += pipe.read_until("last\n");
  EXPECT_TRUE(text.starts_with(line));
  const std::size_t received = lines_of(text) - 2;  // without the notice and the last line
  EXPECT_LE(received * line.size(), OutputQueue::kMaxWaitingBytes + capacity);
  EXPECT_NE(text.find(fmt::format("\n[{} lines are missing here: ", kLines - received)),
            std::string::npos);
}

TEST(OutputQueue, KeepsTheOrderOverSeveralDescriptors) {
  const Pipe pipe;
  const FileDescriptor copy(dup(pipe.writer.get()));
  OutputQueue queue;
  const std::string filler(100'000, 'x');  // more than the pipe takes
  queue.write(pipe.writer.get(), filler + "\n");
  queue.write(copy.get(), "second\n");
  queue.write(pipe.writer.get(), "third\n");
  EXPECT_EQ(pipe.read_until("third\n"), filler + "\nsecond\nthird\n");
}

TEST(OutputQueue, EndsThoughTheReaderTakesNothing) {
  const Pipe pipe;
  {
    OutputQueue queue;
    queue.write(pipe.writer.get(), std::string(200'000, 'x'));
  }
  char byte = 0;
  EXPECT_EQ(read(pipe.reader.get(), &byte, 1), 1);
}

TEST(OutputQueue, WritesToItsOwnCopyOfADescriptorThatIsClosedAfterItsEnd) {
  Pipe pipe;
  const std::string text(200'000, 'x');
  {
    OutputQueue queue;
    queue.write(pipe.writer.get(), text);
  }
  pipe.writer.reset();
  EXPECT_EQ(pipe.read_until_closed().size(), text.size());
}

TEST(OutputQueue, DropsTextWhoseReaderIsGone) {
  const auto before = signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  const Pipe other;
  OutputQueue queue;
  queue.write(pipe.writer.get(), std::string(200'000, 'x'));
  pipe.reader.reset();
  queue.write(other.writer.get(), "next\n");
  EXPECT_EQ(other.read_until("next\n"), "next\n");
  signal(SIGPIPE, before);
}

}  // namespace
}  // namespace tilewright
