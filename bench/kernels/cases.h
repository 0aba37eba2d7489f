// A benchmark case: one kernel on the shapes of one model, with its operands and the minimum number
// of bytes or operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/runtime/memory.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::bench {

using kernels::ThreadPool;
using runtime::bf16;
using runtime::Buffer;
using runtime::Isa;

// The shapes of one fine-tuning step with examples of equal length.
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
  double bytes = 0;  // minimum number of bytes read and written
  double flops = 0;  // 0: bound by memory bandwidth
  std::function<void()> run;
};

struct Case {
  std::string name;
  std::function<Work(ThreadPool& pool, Isa isa, const Model& model)> make;
};

std::vector<Case> activation_cases();  // bf16
std::vector<Case> parameter_cases();

// Random numbers in (-1, 1).
template <typename Element>
std::shared_ptr<Buffer<Element>> random_buffer(std::int64_t count) {
  auto values = std::make_shared<Buffer<Element>>(static_cast<std::size_t>(count));
  runtime::SplitMix64 random(1);
  for (Element& value : values->span()) {
    const auto drawn = static_cast<std::int32_t>(random.next() >> 32);
    value = runtime::from_float<Element>(static_cast<float>(drawn) * 0x1p-31f);
  }
  return values;
}

// i modulo `modulus`.
inline std::shared_ptr<Buffer<std::int32_t>> modulo_buffer(std::int64_t count,
                                                           std::int64_t modulus) {
  auto values = std::make_shared<Buffer<std::int32_t>>(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    (*values)[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % modulus);
  }
  return values;
}

// Offsets that divide `rows` into `parts` equal parts.
inline std::vector<std::int32_t> offsets(std::int64_t rows, std::int64_t parts) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i <= parts; ++i) {
    all.push_back(static_cast<std::int32_t>(rows * i / parts));
  }
  return all;
}

}  // namespace tilewright::bench
