// Makes seeded random strings for tokenizer tests, the same strings as fuzz.py.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::testing {

// Valid UTF-8: words, marks, ideographs, controls, unassigned and private code points, ...
std::string fuzz_string(std::uint64_t seed);

}  // namespace tilewright::testing
