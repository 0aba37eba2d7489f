// The entry of libFuzzer. TILEWRIGHT_FUZZ_HARNESS is the harness of this program.
#include "tests/fuzz/harness.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tilewright::fuzz::TILEWRIGHT_FUZZ_HARNESS(data, size);
}
