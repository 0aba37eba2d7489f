#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tilewright::internal {

void check_failed(const char* file, int line, const char* condition, const std::string& why) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, why.c_str());
  std::abort();
}

}  // namespace tilewright::internal
