#include "common/base/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

namespace tilewright {
namespace {

// The next descriptor that a program gets, if it was started with these closed.
int next_descriptor(std::initializer_list<int> closed) {
  const pid_t child = fork();
  if (child == 0) {
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
  const int next = next_descriptor({});
  EXPECT_GT(next, STDERR_FILENO);
  EXPECT_EQ(next_descriptor({STDIN_FILENO}), next);
  EXPECT_EQ(next_descriptor({STDOUT_FILENO}), next);
  EXPECT_EQ(next_descriptor({STDERR_FILENO}), next);
  EXPECT_EQ(next_descriptor({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}), next);
}

}  // namespace
}  // namespace tilewright
