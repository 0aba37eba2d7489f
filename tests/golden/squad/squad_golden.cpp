#include "tests/golden/squad/squad_golden.h"

#include "worker/tasks/squad/json_reader.h"
#include "worker/text/tokenizer_files.h"

namespace tilewright::testing {

nlohmann::json squad_goldens() {
  return nlohmann::json::parse(read_text(source_dir() / "tests/golden/squad/squad_goldens.json"));
}

tasks::squad::Examples squad_examples(const std::string& file) {
  return tasks::squad::read_json(data_dir() / "squad" / file);
}

text::Tokenizer model_tokenizer(bool lowercase) {
  text::TokenizerSpec spec = text::read_tokenizer_files(model_dir());
  spec.normaliser.lowercase = lowercase;
  return text::Tokenizer(spec);
}

std::uint64_t SplitMix64::below(std::uint64_t n) {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return (z ^ z >> 31) % n;
}

}  // namespace tilewright::testing
