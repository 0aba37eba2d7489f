#include "common/base/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

namespace tilewright {
namespace {

// The next descriptor that a program gets, if it was started with these closed and no others open.
int next_descriptor(std::initializer_list<int> closed) {
  const pid_t child = fork();
  if (child == 0) {
    close_range(STDERR_FILENO + 1, ~0U, 0);
    for (const int fd : closed) close(fd);
    open_standard_descriptors();
    for (const int fd : closed) {
      if (write(fd, "x", 1) != 1) _exit(100);
    }
    _exit(open("/dev/zero", O_RDONLY));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardDescriptors, AreNeverThoseOfOtherFiles) {
  constexpr int kNext = STDERR_FILENO + 1;
  EXPECT_EQ(next_descriptor({}), kNext);
  EXPECT_EQ(next_descriptor({STDIN_FILENO}), kNext);
  EXPECT_EQ(next_descriptor({STDOUT_FILENO}), kNext);
  EXPECT_EQ(next_descriptor({STDERR_FILENO}), kNext);
  EXPECT_EQ(next_descriptor({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}), kNext);
}

}  // namespace
}  // namespace tilewright
