// Checks the objects of the kernel library: which instructions they contain, those of their
// instruction set and none of a higher one, and which functions they call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include "worker/runtime/cpu.h"

namespace tilewright::kernels {
namespace {

using runtime::Isa;

// Path of the kernel library, relative to the directory of the test programs.
std::string library() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
         "worker/kernels/libtilewright_kernels.a";
}

void for_lines(const std::string& command, const std::function<void(const std::string&)>& visit) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("LC_ALL=C " + command).c_str(), "r"),
                                                   pclose);
  ASSERT_NE(pipe, nullptr) << command;
  std::string line;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    visit(line);
    line.clear();
  }
}

constexpr const char* kInstructions[] = {"tdpbf16ps", "vdpbf16ps", "%zmm", "%ymm"};

// Maps each object of the library to those of kInstructions that its code contains.
std::map<std::string, std::set<std::string>> instructions_by_object() {
  std::map<std::string, std::set<std::string>> found;
  std::string object;
  for_lines("objdump -d --no-show-raw-insn '" + library() + "'", [&](const std::string& line) {
    if (const auto end = line.find(":     file format"); end != std::string::npos) {
      object = line.substr(0, end);
      found[object];
    }
    for (const char* instruction : kInstructions) {
      if (line.find(instruction) != std::string::npos) found[object].insert(instruction);
    }
  });
  return found;
}

// The instruction set that the object's name ends in: "gemm_avx2.cpp.o".
std::optional<Isa> isa_of(const std::string& object) {
  for (const Isa isa : runtime::kAllIsas) {
    if (isa != Isa::kRef && object.ends_with("_" + std::string(runtime::name(isa)) + ".cpp.o"))
      return isa;
  }
  return std::nullopt;
}

TEST(KernelObjects, UseTheInstructionSetInTheirName) {
  const auto instructions = instructions_by_object();
  ASSERT_TRUE(instructions.contains("gemm_amx.cpp.o"))
      << "no object of the AMX kernels in " << library();
  EXPECT_THAT(instructions.at("gemm_amx.cpp.o"), ::testing::Contains("tdpbf16ps"));
  EXPECT_THAT(instructions.at("gemm_avx512_bf16.cpp.o"), ::testing::Contains("vdpbf16ps"));
  EXPECT_THAT(instructions.at("gemm_avx512.cpp.o"), ::testing::Contains("%zmm"));
  EXPECT_THAT(instructions.at("gemm_avx2.cpp.o"), ::testing::Contains("%ymm"));
}

TEST(KernelObjects, ContainNoInstructionOfAHigherInstructionSet) {
  for (const auto& [object, instructions] : instructions_by_object()) {
    SCOPED_TRACE(object);
    const std::optional<Isa> isa = isa_of(object);
    EXPECT_LE(instructions.count("tdpbf16ps"), isa >= Isa::kAmx);
    EXPECT_LE(instructions.count("vdpbf16ps"), isa >= Isa::kAvx512Bf16);
    EXPECT_LE(instructions.count("%zmm"), isa >= Isa::kAvx512);
    EXPECT_LE(instructions.count("%ymm"), isa >= Isa::kAvx2);
  }
}

// The linker keeps one copy of a function that several objects define (an inline function, a
// template instance). A copy compiled for AVX-512 would crash on other CPUs.
TEST(KernelObjects, OfOneInstructionSetDefineNoWeakSymbols) {
  std::string object;
  int objects = 0;
  for_lines("nm --defined-only '" + library() + "'", [&](const std::string& line) {
    if (line.ends_with(".o:")) {
      object = line.substr(0, line.size() - 1);
      if (isa_of(object)) ++objects;
    } else if (isa_of(object)) {
      const bool shared = line.find(" W ") != std::string::npos ||
                          line.find(" V ") != std::string::npos ||
                          line.find(" u ") != std::string::npos;
      // DW.ref. symbols (references to the exception handler) are data, not code.
      EXPECT_FALSE(shared && line.find("DW.ref.") == std::string::npos) << object << ": " << line;
    }
  });
  EXPECT_GE(objects, 4) << library();
}

// Other versions of the math library have other bits. Correctly rounded functions (sqrt, fma) have
// none to choose.
TEST(KernelObjects, CallNoMathLibraryAndNeitherAllocateNorThrow) {
  const std::regex mathematics(
      "(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sinh|cosh|tanh|erf|erfc|cbrt|hypot)f?");
  const std::regex runtime(
      "malloc|calloc|realloc|aligned_alloc|posix_memalign|_Zn[wa].*|__cxa_throw");
  std::string object;
  int calls = 0;
  for_lines("nm --undefined-only '" + library() + "'", [&](const std::string& line) {
    if (line.ends_with(".o:")) object = line.substr(0, line.size() - 1);
    const auto symbol = line.find(" U ");
    if (symbol == std::string::npos) return;
    ++calls;
    const std::string name = line.substr(symbol + 3);
    EXPECT_FALSE(std::regex_match(name, mathematics)) << object << ": " << name;
    EXPECT_FALSE(isa_of(object) && std::regex_match(name, runtime)) << object << ": " << name;
  });
  EXPECT_GE(calls, 100) << library();
}

}  // namespace
}  // namespace tilewright::kernels
