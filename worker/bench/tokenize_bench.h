// Benchmarks the conversion of text to tokens: the lines of a file, each as one text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tilewright::bench {

struct TokenizeBenchOptions {
  std::filesystem::path tokenizer;  // a model directory
  std::filesystem::path file;       // valid UTF-8
  int repetitions = 5;              // timed runs over the file, after one untimed
  int threads = 1;
};

struct TokenizeBenchResult {
  TokenizeBenchOptions options;
  std::string cpu;
  std::size_t bytes = 0;
  std::size_t tokens = 0;
  std::vector<double> seconds;  // of each timed run
  double median = 0;
  std::string to_json() const;
  std::string to_text() const;
};

// Throws Failure (kModel or kData).
TokenizeBenchResult bench_tokenize(const TokenizeBenchOptions& options);

}  // namespace tilewright::bench
