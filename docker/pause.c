// Waits to be told to end, and reaps: the first process of a pod's sandbox, or of the tests' machine. Whatever
// loses its parent becomes this one's child.
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // To a first process the kernel delivers only what it waits for or handles.
  sigprocmask(SIG_BLOCK, &signals, NULL);
  for (;;) {
    int got = 0;
    if (sigwait(&signals, &got) == 0 && got != SIGCHLD) return 0;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
}
