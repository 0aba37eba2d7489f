#include "tests/golden/squad/squad_golden.h"

#include "worker/runtime/split_mix.h"
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

const std::map<std::string, FeatureCase>& feature_cases() {
  static const std::map<std::string, FeatureCase> cases = {
      {"uncased", {true, {.max_seq_length = 384, .doc_stride = 128}}},
      {"cased", {false, {.max_seq_length = 384, .doc_stride = 128}}},
      {"short", {true, {.max_seq_length = 96, .doc_stride = 24}}}};
  return cases;
}

std::vector<std::string> feature_hashes(const tasks::squad::Examples& examples,
                                        const tasks::squad::Features& made) {
  constexpr std::size_t kQuestionsPerHash = 100;
  std::vector<SequenceHash> hashes((examples.questions.size() + kQuestionsPerHash - 1) /
                                   kQuestionsPerHash);
  const tasks::Dataset tokens(made.tokens);
  for (std::size_t i = 0; i < made.features.size(); ++i) {
    const tasks::squad::Feature& feature = made.features[i];
    SequenceHash& hash = hashes[feature.question / kQuestionsPerHash];
    hash.sequence(tokens.ids_of(i));
    hash.sequence(token_types(tokens.length(i), tokens.first_segment_of(i)));
    std::vector<std::int32_t> offsets;
    for (std::size_t token = 0; token < feature.length(); ++token) {
      const auto span = made.span(examples, i, token);
      offsets.push_back(span ? static_cast<std::int32_t>(span->begin) : -1);
      offsets.push_back(span ? static_cast<std::int32_t>(span->end) : -1);
    }
    hash.sequence(offsets);
    hash.sequence(std::vector<std::int32_t>{static_cast<std::int32_t>(feature.question),
                                            feature.start, feature.end});
  }
  std::vector<std::string> found;
  found.reserve(hashes.size());
  for (SequenceHash& hash : hashes) found.push_back(hash.hex());
  return found;
}

std::vector<float> make_logits(const tasks::squad::Features& made) {
  runtime::SplitMix64 random(2018);
  std::vector<float> logits;
  for (std::size_t i = 0; i < made.features.size(); ++i) {
    const std::size_t begin = logits.size();
    for (std::size_t k = 0; k < 2 * made.features[i].length(); ++k) {
      const auto draw = static_cast<std::int64_t>(random.next() % (1 << 24)) - (1 << 23);
      logits.push_back(static_cast<float>(draw) / static_cast<float>(1 << 20));
    }
    if (i % 3 == 0) {
      logits[begin + 2 * static_cast<std::size_t>(made.features[i].start)] += 8;
      logits[begin + 2 * static_cast<std::size_t>(made.features[i].end) + 1] += 8;
    }
    if (i % 5 == 0) {
      logits[begin] += 8;
      logits[begin + 1] += 8;
    }
  }
  return logits;
}

}  // namespace tilewright::testing
