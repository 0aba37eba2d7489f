// Seeded strings that try a tokenizer: the same ones as fuzz.py makes, number for number.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::testing {

// Valid UTF-8: words, marks, ideographs, controls, unassigned and private code points, ...
std::string fuzz_string(std::uint64_t seed);

}  // namespace tilewright::testing
