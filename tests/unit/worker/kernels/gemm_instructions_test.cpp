// Which instructions the objects of the kernels' library hold: the ones they are for, and none that
// a lesser CPU could meet by accident.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace tilewright::kernels {
namespace {

// The library stands beside the folder of the test programs in every build.
std::string library() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
         "worker/kernels/libtilewright_kernels.a";
}

void for_lines(const std::string& command, const std::function<void(const std::string&)>& visit) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
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

constexpr const char* kMarks[] = {"tdpbf16ps", "vdpbf16ps", "%zmm", "%ymm"};

// For each object of the library, which of kMarks its code has.
std::map<std::string, std::set<std::string>> marks_of_objects() {
  std::map<std::string, std::set<std::string>> found;
  std::string object;
  for_lines("objdump -d --no-show-raw-insn '" + library() + "'", [&](const std::string& line) {
    if (const auto end = line.find(":     file format"); end != std::string::npos) {
      object = line.substr(0, end);
      found[object];
    }
    for (const char* mark : kMarks) {
      if (line.find(mark) != std::string::npos) found[object].insert(mark);
    }
  });
  return found;
}

bool ends_with_isa(const std::string& object, std::initializer_list<const char*> isas) {
  for (const char* isa : isas) {
    if (object.ends_with(std::string("_") + isa + ".cpp.o")) return true;
  }
  return false;
}

TEST(KernelObjects, MultiplyWithTheInstructionTheyAreNamedFor) {
  const auto marks = marks_of_objects();
  ASSERT_TRUE(marks.contains("gemm_amx.cpp.o")) << "no object of the AMX kernels in " << library();
  EXPECT_THAT(marks.at("gemm_amx.cpp.o"), ::testing::Contains("tdpbf16ps"));
  EXPECT_THAT(marks.at("gemm_avx512_bf16.cpp.o"), ::testing::Contains("vdpbf16ps"));
  EXPECT_THAT(marks.at("gemm_avx512.cpp.o"), ::testing::Contains("%zmm"));
  EXPECT_THAT(marks.at("gemm_avx2.cpp.o"), ::testing::Contains("%ymm"));
}

TEST(KernelObjects, HoldNoInstructionOfAGreaterInstructionSet) {
  for (const auto& [object, marks] : marks_of_objects()) {
    SCOPED_TRACE(object);
    const bool amx = ends_with_isa(object, {"amx"});
    const bool avx512_bf16 = amx || ends_with_isa(object, {"avx512_bf16"});
    const bool avx512 = avx512_bf16 || ends_with_isa(object, {"avx512"});
    const bool avx2 = avx512 || ends_with_isa(object, {"avx2"});
    EXPECT_LE(marks.count("tdpbf16ps"), amx);
    EXPECT_LE(marks.count("vdpbf16ps"), avx512_bf16);
    EXPECT_LE(marks.count("%zmm"), avx512);
    EXPECT_LE(marks.count("%ymm"), avx2);
  }
}

// The linker keeps one copy of a function that several objects define (an inline function, an
// instance of a template); one compiled for AVX-512 must not become everybody's.
TEST(KernelObjects, OfOneInstructionSetDefineNothingThatOthersMightBeGiven) {
  std::string object;
  int objects = 0;
  for_lines("nm --defined-only '" + library() + "'", [&](const std::string& line) {
    if (line.ends_with(".o:")) {
      object = line.substr(0, line.size() - 1);
      if (ends_with_isa(object, {"amx", "avx512_bf16", "avx512", "avx2"})) ++objects;
    } else if (ends_with_isa(object, {"amx", "avx512_bf16", "avx512", "avx2"})) {
      const bool shared = line.find(" W ") != std::string::npos ||
                          line.find(" V ") != std::string::npos ||
                          line.find(" u ") != std::string::npos;
      // The reference to the language's exception handler is shared data, not code.
      EXPECT_FALSE(shared && line.find("DW.ref.") == std::string::npos) << object << ": " << line;
    }
  });
  EXPECT_GE(objects, 4) << library();
}

}  // namespace
}  // namespace tilewright::kernels
