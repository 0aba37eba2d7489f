// What is measured: one kernel on the shapes of one model, the bytes it cannot avoid to move or the
// operations it cannot avoid to do, and the memory it works on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/runtime/memory.h"

namespace tilewright::bench {

using kernels::ThreadPool;
using runtime::bf16;
using runtime::Buffer;
using runtime::Isa;

// Examples of equal length, as a step of fine-tuning packs them.
struct Model {
  const char* name = "";
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t intermediate = 0;
  std::int64_t examples = 0;
  std::int64_t seqlen = 0;
  std::int64_t rows() const { return examples * seqlen; }
};

struct Work {
  double bytes = 0;  // read or written at least once
  double flops = 0;  // 0: bound by memory
  std::function<void()> run;
};

struct Case {
  std::string name;
  std::function<Work(ThreadPool& pool, Isa isa, const Model& model)> make;
};

std::vector<Case> activation_cases();  // bf16
std::vector<Case> parameter_cases();

// Numbers in (-1, 1).
template <typename T>
std::shared_ptr<Buffer<T>> filled(std::int64_t count) {
  auto values = std::make_shared<Buffer<T>>(static_cast<std::size_t>(count));
  std::uint32_t seed = 1;
  for (T& value : values->span()) {
    seed = seed * 1664525u + 1013904223u;
    value = runtime::from_float<T>(static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f);
  }
  return values;
}

// i modulo `most`.
inline std::shared_ptr<Buffer<std::int32_t>> counted(std::int64_t count, std::int64_t most) {
  auto values = std::make_shared<Buffer<std::int32_t>>(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    (*values)[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % most);
  }
  return values;
}

// Offsets of `parts` equal parts of `rows`.
inline std::vector<std::int32_t> offsets(std::int64_t rows, std::int64_t parts) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i <= parts; ++i) {
    all.push_back(static_cast<std::int32_t>(rows * i / parts));
  }
  return all;
}

}  // namespace tilewright::bench
