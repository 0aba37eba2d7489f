// The program that the worker image starts in place of the worker. It is statically linked, so the
// dynamic loader does not run for it: it removes the entries of LD_PRELOAD that do not exist, for
// each of which the loader would print an error, and then replaces itself by the worker under the
// name by which it was called. The worker is ../libexec/tilewright-worker relative to its
// directory. Entries are separated by colons and blanks (ld.so(8)). Uses only libc, to stay small.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <memory>

namespace {

constexpr char kWorker[] = "/../libexec/tilewright-worker";
constexpr const char* kMissingPreloads = "TILEWRIGHT_MISSING_PRELOADS";  // see environment.h

// Where the loader looks for a name without a slash, besides LD_LIBRARY_PATH and its cache.
constexpr const char* kLibraryDirectories =
    "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";

bool is_in(const char* directories, const char* name) {
  for (const char* at = directories; *at != '\0';) {
    const size_t size = strcspn(at, ":;");
    char path[PATH_MAX];
    const int written = snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(size), at, name);
    if (written > 0 && static_cast<size_t>(written) < sizeof path && access(path, F_OK) == 0) {
      return true;
    }
    at += size;
    if (*at != '\0') ++at;
  }
  return false;
}

bool exists(const char* entry) {
  // The loader replaces $ORIGIN, $LIB and $PLATFORM.
  if (strchr(entry, '$') != nullptr || access(entry, F_OK) == 0) return true;
  if (strchr(entry, '/') != nullptr) return false;
  const char* given = getenv("LD_LIBRARY_PATH");
  return access("/etc/ld.so.cache", F_OK) == 0 || (given != nullptr && is_in(given, entry)) ||
         is_in(kLibraryDirectories, entry);
}

struct Free {
  void operator()(char* text) const { free(text); }
};
using Text = std::unique_ptr<char, Free>;

// Appends to a list in a buffer of `size` bytes, which are enough.
void append(char* list, size_t size, const char* entry) {
  const size_t used = strlen(list);
  snprintf(list + used, size - used, "%s%s", used == 0 ? "" : ":", entry);
}

// Returns false if memory or the environment is exhausted.
bool remove_missing_preloads() {
  unsetenv(kMissingPreloads);
  const char* preloads = getenv("LD_PRELOAD");
  if (preloads == nullptr) return true;
  const size_t size = strlen(preloads) + 1;
  const Text entries(strdup(preloads));
  const Text kept(static_cast<char*>(calloc(1, size)));
  const Text missing(static_cast<char*>(calloc(1, size)));
  if (entries == nullptr || kept == nullptr || missing == nullptr) return false;
  char* rest = nullptr;
  for (char* entry = strtok_r(entries.get(), ": \t\n", &rest); entry != nullptr;
       entry = strtok_r(nullptr, ": \t\n", &rest)) {
    append((exists(entry) ? kept : missing).get(), size, entry);
  }
  if (*missing == '\0') return true;
  const int changed = *kept == '\0' ? unsetenv("LD_PRELOAD") : setenv("LD_PRELOAD", kept.get(), 1);
  return changed == 0 && setenv(kMissingPreloads, missing.get(), 1) == 0;
}

int fail(const char* what, const char* why) {
  fprintf(stderr, "tilewright-worker: %s: %s\n", what, why);
  return 1;
}

}  // namespace

int main(int, char** argv) {
  if (!remove_missing_preloads()) return fail("LD_PRELOAD", "out of memory");
  // The path by which the kernel started this program; realpath() follows links of other names.
  const auto* started =
      reinterpret_cast<const char*>(getauxval(AT_EXECFN));  // NOLINT: an address as an integer
  char path[PATH_MAX + sizeof kWorker];
  if (started == nullptr || realpath(started, path) == nullptr) {
    return fail(started == nullptr ? "its path" : started, strerror(errno));
  }
  memcpy(strrchr(path, '/'), kWorker, sizeof kWorker);
  execv(path, argv);
  return fail(path, strerror(errno));
}
