// Compares offsets of tokens and the features of every question with the reference's hashes.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/golden/squad/squad_golden.h"
#include "tests/golden/text/fuzz.h"
#include "worker/tasks/squad/features.h"
#include "worker/text/tokenizer_files.h"

namespace tilewright::tasks::squad {
namespace {

using testing::SequenceHash;

TEST(SquadFeatures, EqualTheReferenceForEveryQuestion) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  TILEWRIGHT_NEEDS(testing::data_dir() / "squad/dev-v2.0.json", "TILEWRIGHT_DATA_DIR");
  const auto goldens = testing::squad_goldens().at("features");
  EXPECT_EQ(goldens.size(), 12U);
  for (const auto& [name, golden] : goldens.items()) {
    const std::size_t space = name.find(' ');
    const Examples examples = testing::squad_examples(name.substr(0, space));
    const testing::FeatureCase& chosen = testing::feature_cases().at(name.substr(space + 1));
    const text::Tokenizer tokenizer = testing::model_tokenizer(chosen.lowercase);
    const Features made = make_features(examples, tokenizer, chosen.options, name);
    ASSERT_EQ(examples.questions.size(), golden.at("questions").get<std::size_t>()) << name;
    EXPECT_EQ(made.features.size(), golden.at("features").get<std::size_t>()) << name;
    EXPECT_EQ(testing::feature_hashes(examples, made),
              golden.at("hashes").get<std::vector<std::string>>())
        << name;
  }
}

TEST(TokenOffsets, EqualTheReferenceForRandomStringsAndEverySetOfOptions) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  const std::map<std::string, std::function<void(text::NormaliserOptions&)>> sets = {
      {"as_configured", [](text::NormaliserOptions&) {}},
      {"cased", [](text::NormaliserOptions& options) { options.lowercase = false; }},
      {"accents_kept", [](text::NormaliserOptions& options) { options.strip_accents = false; }},
      {"bare", [](text::NormaliserOptions& options) {
         options = {.clean_text = false,
                    .handle_chinese_chars = false,
                    .strip_accents = true,
                    .lowercase = false};
       }}};
  const auto goldens = testing::squad_goldens().at("offsets");
  EXPECT_EQ(goldens.size(), sets.size());
  for (const auto& [name, change] : sets) {
    text::TokenizerSpec spec = text::read_tokenizer_files(testing::model_dir());
    change(spec.normaliser);
    const text::Tokenizer tokenizer(spec);
    for (std::size_t part = 0; part < 50; ++part) {
      SequenceHash hash;
      for (std::size_t i = 100 * part; i < 100 * (part + 1); ++i) {
        std::vector<std::int32_t> ids;
        std::vector<text::CharacterSpan> spans;
        tokenizer.tokenize(testing::fuzz_string(i), ids, spans);
        std::vector<std::int32_t> offsets;
        for (const text::CharacterSpan& span : spans) {
          offsets.push_back(static_cast<std::int32_t>(span.begin));
          offsets.push_back(static_cast<std::int32_t>(span.end));
        }
        hash.sequence(ids);
        hash.sequence(offsets);
      }
      EXPECT_EQ(hash.hex(), goldens.at(name).at(part).get<std::string>())
          << name << ", strings from " << 100 * part;
    }
  }
}

}  // namespace
}  // namespace tilewright::tasks::squad
