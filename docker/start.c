// The start program of the tarball: runs lib/tilewright-worker beside it with the loader and the
// libraries of lib/, wherever the tarball was unpacked, whatever libc the system has. Linked
// statically, so it needs nothing of the system.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[PATH_MAX];

static char *in_directory(char *buffer, const char *name) {
  if (snprintf(buffer, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX) {
    fprintf(stderr, "tilewright-worker: %s: the path is too long\n", directory);
    exit(1);
  }
  return buffer;
}

int main(int argc, char **argv) {
  static char loader[PATH_MAX], libraries[PATH_MAX], program[PATH_MAX], certificates[PATH_MAX];
  ssize_t size = readlink("/proc/self/exe", directory, sizeof directory - 1);
  if (size <= 0) {
    fprintf(stderr, "tilewright-worker: cannot read /proc/self/exe: %s\n", strerror(errno));
    return 1;
  }
  directory[size] = 0;
  // The agent starts this program again, on this host and on others.
  setenv("TILEWRIGHT_PROGRAM", directory, 1);
  *strrchr(directory, '/') = 0;
  in_directory(loader, "lib/ld-linux-x86-64.so.2");
  in_directory(libraries, "lib");
  in_directory(program, "lib/tilewright-worker");
  setenv("SSL_CERT_FILE", in_directory(certificates, "share/ca-certificates.crt"), 0);
  // A library of the system may need the system's libc, which is not the one here.
  const char *preload = getenv("LD_PRELOAD");
  if (preload != NULL && *preload != 0)
    fprintf(stderr, "tilewright-worker: LD_PRELOAD=%s has no effect: the tarball has its own libraries\n",
            preload);
  unsetenv("LD_PRELOAD");

  char **arguments = calloc((size_t)argc + 8, sizeof *arguments);
  if (arguments == NULL) return 1;
  int count = 0;
  arguments[count++] = loader;
  arguments[count++] = "--inhibit-cache";
  arguments[count++] = "--library-path";
  arguments[count++] = libraries;
  arguments[count++] = "--argv0";
  arguments[count++] = "tilewright-worker";
  arguments[count++] = program;
  for (int i = 1; i < argc; ++i) arguments[count++] = argv[i];
  execv(loader, arguments);
  fprintf(stderr, "tilewright-worker: cannot start %s: %s\n", loader, strerror(errno));
  return 1;
}
