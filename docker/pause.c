// Init process (PID 1) of a pod's sandbox and of the test machine: reaps orphaned processes and
// exits on a signal.
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // The kernel delivers to PID 1 only the signals that it waits for or handles.
  sigprocmask(SIG_BLOCK, &signals, NULL);
  for (;;) {
    int got = 0;
    if (sigwait(&signals, &got) == 0 && got != SIGCHLD) return 0;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
}
