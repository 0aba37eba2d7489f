#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/worker/tasks/squad_builders.h"
#include "worker/tasks/squad/features.h"

namespace tilewright::tasks::squad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using text::CharacterSpan;

// With the tiny vocabulary: [UNK] 1, [CLS] 2, [SEP] 3, a 8, ##a 9, cafe 10, 文 13, b 16, x 19.

TEST(SquadFeatures, PutTheQuestionFirstAndMapTokensToCharacters) {
  const Examples examples = examples_of("b  Café文 a", {{"q", " \t x", 0, {{"afé", 4}}}});
  const Features made = make_features(examples, tiny_tokenizer(), {}, "f");
  ASSERT_EQ(made.features.size(), 1U);
  EXPECT_EQ(made.tokens.ids, (Ids{2, 19, 3, 16, 10, 13, 8, 3}));
  EXPECT_THAT(made.tokens.first_segments, ElementsAre(3));
  EXPECT_EQ(made.features[0].length(), 8U);
  EXPECT_EQ(made.span(examples, 0, 2), std::nullopt);
  EXPECT_EQ(made.span(examples, 0, 3), (CharacterSpan{0, 1}));
  EXPECT_EQ(made.span(examples, 0, 4), (CharacterSpan{3, 7}));
  EXPECT_EQ(made.span(examples, 0, 5), (CharacterSpan{7, 8}));
  EXPECT_EQ(made.span(examples, 0, 6), (CharacterSpan{9, 10}));
  EXPECT_EQ(made.span(examples, 0, 7), std::nullopt);
  EXPECT_EQ(made.features[0].start, 4) << "the answer begins inside this token";
  EXPECT_EQ(made.features[0].end, 4);
}

TEST(SquadFeatures, AreTheSameForAnyNumberOfThreads) {
  ExamplesBuilder builder("table");
  for (std::size_t i = 0; i < 200; ++i) {
    std::string context = "a" + std::string(i / 3, ' ');
    for (std::size_t word = 0; word < i / 3; ++word) context += " b";
    builder.add({"q" + std::to_string(i), context, "x " + std::string(i % 5, '!'), {{"a", 0}}});
  }
  const Examples examples = std::move(builder).finish();
  for (const std::size_t max_features : {std::size_t{0}, std::size_t{70}}) {
    FeatureOptions options = {.max_seq_length = 24, .doc_stride = 2, .max_features = max_features};
    const Features expected = make_features(examples, tiny_tokenizer(), options, "f");
    Features found;
    std::thread([&] {  // a pool changes the floating-point mode of its thread
      runtime::ThreadPool pool(3);
      options.pool = &pool;
      found = make_features(examples, tiny_tokenizer(), options, "f");
    })
        .join();
    ASSERT_GE(expected.features.size(), 70U);
    EXPECT_EQ(found.tokens.ids, expected.tokens.ids);
    EXPECT_EQ(found.tokens.offsets, expected.tokens.offsets);
    ASSERT_EQ(found.features.size(), expected.features.size());
    for (std::size_t i = 0; i < found.features.size(); ++i) {
      EXPECT_EQ(found.features[i].start, expected.features[i].start);
      EXPECT_EQ(found.features[i].question, expected.features[i].question);
    }
  }
}

TEST(SquadFeatures, OverlapWindowsAndLabelThoseWithTheWholeAnswer) {
  // Eight tokens in windows of 4 that share 2: [0, 4), [2, 6), [4, 8).
  const Examples examples =
      examples_of("a b a b x b a b", {{"q", "x", 0, {{"x b", 8}, {"a", 0}}}, {"r", "a", 0, {}}});
  const Features made =
      make_features(examples, tiny_tokenizer(), {.max_seq_length = 8, .doc_stride = 2}, "f");
  ASSERT_EQ(made.features.size(), 6U);
  const Dataset data(made.tokens);
  EXPECT_THAT(data.ids_of(0), ElementsAre(2, 19, 3, 8, 16, 8, 16, 3));
  EXPECT_THAT(data.ids_of(1), ElementsAre(2, 19, 3, 8, 16, 19, 16, 3));
  EXPECT_THAT(data.ids_of(2), ElementsAre(2, 19, 3, 19, 16, 8, 16, 3));
  EXPECT_EQ(made.features[0].start, 0) << "the answer is not in the window";
  EXPECT_EQ(made.features[0].end, 0);
  EXPECT_EQ(made.features[1].start, 5);
  EXPECT_EQ(made.features[1].end, 6);
  EXPECT_EQ(made.features[2].start, 3);
  EXPECT_EQ(made.features[2].end, 4);
  EXPECT_EQ(made.features[5].question, 1U);
  EXPECT_EQ(made.features[5].start, 0);
  EXPECT_EQ(made.features[5].window_begin, 4U);
  EXPECT_EQ(made.spans.size(), 1U) << "one context, tokenized once";
}

TEST(SquadFeatures, LabelAnAnswerInTheLastTokenAsRunQaDoes) {
  const Examples examples = examples_of("a b", {{"q", "x", 0, {{"b", 2}}}});
  const Features made = make_features(examples, tiny_tokenizer(), {}, "f");
  EXPECT_EQ(made.features[0].start, 5)
      << "[SEP]: its offset (0, 0) is not after the answer's begin";
  EXPECT_EQ(made.features[0].end, 4);
}

TEST(SquadFeatures, KeepTheFirstFeaturesOnly) {
  const Examples examples = examples_of("a b a b x b a b", {{"q", "x"}, {"r", "a"}});
  const Features made = make_features(
      examples, tiny_tokenizer(), {.max_seq_length = 8, .doc_stride = 2, .max_features = 2}, "f");
  EXPECT_EQ(made.features.size(), 2U);
  EXPECT_EQ(made.tokens.first_segments.size(), 2U);
}

TEST(SquadFeatures, RefuseALongQuestionOnlyIfItsContextDoesNotFit) {
  const auto made = [](const std::string& context, const std::string& text) {
    return make_features(examples_of(context, {{"q", text}}), tiny_tokenizer(),
                         {.max_seq_length = 8, .doc_stride = 2}, "f");
  };
  EXPECT_EQ(made("a b", "a a a").features.size(), 1U);
  EXPECT_EQ(made("a b a", "a a").features.size(), 1U);
  EXPECT_EQ(failure_of([&] { made("a b a", "a a a"); }),
            "f: question \"q\": its 3 tokens leave 2 of max_seq_length 8 for the context, expected "
            "more than doc_stride 2");
  EXPECT_THAT(failure_of([&] { made("a", "a a a a a a a a a"); }),
              HasSubstr("leave 0 of max_seq_length 8"));
  EXPECT_EQ(failure_of([&] { made("\u200b\u200d", "a"); }),
            "f: question \"q\": the context has no tokens, expected text");
}

}  // namespace
}  // namespace tilewright::tasks::squad
