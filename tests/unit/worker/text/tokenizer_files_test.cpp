#include "worker/text/tokenizer_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>

#include "common/base/result.h"
#include "tests/unit/worker/text/builders.h"

namespace tilewright::text {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

// The message of the Failure that reading the directory throws.
std::string failure_of(const std::filesystem::path& directory) {
  try {
    read_tokenizer_files(directory);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kModel);
    return failure.what();
  }
  ADD_FAILURE() << "no Failure was thrown";
  return "";
}

std::string failure_of_json(const std::function<void(Json&)>& change) {
  const ModelDirectory directory;
  directory.write_json(change);
  return failure_of(directory.path());
}

TEST(TokenizerFiles, VocabTxtAloneGivesALowerCaseTokenizer) {
  const ModelDirectory directory;
  directory.write_vocab();
  const Tokenizer tokenizer = Tokenizer::load(directory.path());
  EXPECT_EQ(ids_of(tokenizer, "CAFÉ [MASK]"), (Ids{10, 4}));
  EXPECT_EQ(tokenizer.special().cls, 2);
  EXPECT_EQ(tokenizer.special().pad, 0);
  EXPECT_EQ(tokenizer.vocab_size(), 20);
}

TEST(TokenizerFiles, RefusesDeepNesting) {
  const ModelDirectory directory;
  directory.write_vocab();
  std::string deep = R"({"unk_token": )";
  for (int i = 0; i < 100000; ++i) deep += R"({"a":)";
  directory.write("tokenizer_config.json", deep + "1" + std::string(100001, '}'));
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("nests deeper than 64 levels"));
  directory.write("tokenizer_config.json", R"({"a": 1e999})");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("a number out of range"));
}

TEST(TokenizerFiles, RefusesAPipeWithoutWaitingForItsWriter) {
  for (const char* name : {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}) {
    const ModelDirectory directory;
    const std::string path = directory.path() / name;
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(failure_of(directory.path()),
                StartsWith(path + ": is a pipe, expected a regular file"));
  }
}

TEST(TokenizerFiles, TokenizerConfigSetsTheNormaliser) {
  const ModelDirectory directory;
  directory.write_vocab();
  directory.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "café Cafe"), (Ids{11, 12}));
  directory.write("tokenizer_config.json", R"({"strip_accents": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "CAFÉ"), (Ids{11}));
  directory.write("tokenizer_config.json", R"({"tokenize_chinese_chars": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "a文"), (Ids{8, 18}));
}

TEST(TokenizerFiles, TokenizerConfigNamesSpecialTokens) {
  const ModelDirectory directory;
  directory.write("vocab.txt", "<pad>\n<unk>\n<s>\n</s>\na\n");
  directory.write("tokenizer_config.json",
                  R"({"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>",
                   "sep_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::load(directory.path());
  EXPECT_EQ(tokenizer.encode("a z <s>").ids, (Ids{2, 4, 1, 2, 3}));
  EXPECT_EQ(tokenizer.special().mask, -1);
}

TEST(TokenizerFiles, TokenizerConfigLimitsTheTokensOfAnInput) {
  const ModelDirectory directory;
  directory.write_vocab();
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  const auto limit = [&](const std::string& value) {
    directory.write("tokenizer_config.json", R"({"model_max_length": )" + value + "}");
    return Tokenizer::load(directory.path()).model_max_length();
  };
  EXPECT_EQ(Tokenizer::load(directory.path()).model_max_length(), kNoLimit);
  EXPECT_EQ(limit("512"), 512);
  EXPECT_EQ(limit("null"), kNoLimit);
  EXPECT_EQ(limit(R"(null, "max_len": 128)"), 128) << "its old name";
  EXPECT_EQ(limit(R"(64, "max_len": 128)"), 64);
  EXPECT_EQ(limit("1000000000000000019884624838656"), kNoLimit) << "as transformers writes it";
  for (const char* bad : {"0", "-1", "\"512\""}) {
    directory.write("tokenizer_config.json", fmt::format(R"({{"model_max_length": {}}})", bad));
    EXPECT_THAT(failure_of(directory.path()),
                HasSubstr(fmt::format("model_max_length is {}, expected a positive number", bad)));
  }
}

TEST(TokenizerFiles, AcceptsWindowsLineBreaksAndALastLineWithoutOne) {
  const ModelDirectory directory;
  directory.write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n\r\na");
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "a"), (Ids{5})) << "an empty line has an id";
}

TEST(TokenizerFiles, ReadsTheTokensThatWereAddedToVocabTxt) {
  const ModelDirectory directory;
  directory.write_vocab();
  directory.write("added_tokens.json", R"({"[E1]": 20, "[/E1]": 21})");
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "[E1] a [/e1]"), (Ids{20, 8, 21}));
  EXPECT_EQ(Tokenizer::load(directory.path()).vocab_size(), 22);
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    directory.write(file, R"({"additional_special_tokens": ["[/E1]"]})");
    EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "[E1] a [/e1] [/E1]"),
              (Ids{20, 8, 1, 1, 1, 1, 21}))
        << "no lower case in " << file;
    directory.write(file, "{}");
  }
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "4": {"content": "[MASK]", "lstrip": true}, "20": {"content": "[E1]"}}})");
  const Tokenizer decoder = Tokenizer::load(directory.path());
  EXPECT_EQ(ids_of(decoder, "a [MASK][E1]"), (Ids{8, 4, 20}));
  EXPECT_EQ(decoder.vocab_size(), 21);
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "y"}}})");
  EXPECT_THAT(failure_of(directory.path()),
              HasSubstr(R"(added_tokens_decoder["x"].id is "x", expected an integer)"));
  directory.write("tokenizer_config.json", "{}");
  directory.write("added_tokens.json", R"({"[E1]": -1})");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr(R"("[E1]" is -1, expected an integer)"));
}

TEST(TokenizerFiles, RefusesAnotherTokenizerThatUsesVocabTxt) {
  const ModelDirectory directory;
  directory.write_vocab();
  for (const char* good : {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer"}) {
    directory.write("tokenizer_config.json", fmt::format(R"({{"tokenizer_class": "{}"}})", good));
    Tokenizer::load(directory.path());
  }
  directory.write("tokenizer_config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_THAT(
      failure_of(directory.path()),
      HasSubstr("tokenizer_class is \"BertJapaneseTokenizer\", expected BertTokenizer or "));
  directory.write("tokenizer_config.json", R"({"word_tokenizer_type": "mecab"})");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("word_tokenizer_type is \"mecab\""));
  directory.write("tokenizer_config.json", "{}");
  directory.write("config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("config.json: tokenizer_class is"));
}

TEST(TokenizerFiles, PrefersTokenizerJsonOverVocabTxt) {
  const ModelDirectory directory;
  directory.write("vocab.txt", "nonsense");
  directory.write_json();
  EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "unaffable"), (Ids{5, 6, 7}));
}

TEST(TokenizerFiles, AppliesTheSettingsOfTokenizerJson) {
  const ModelDirectory directory;
  directory.write_json([](Json& root) {
    root["normalizer"]["lowercase"] = false;
    root["model"]["max_input_chars_per_word"] = 4;
    root["added_tokens"].push_back({{"id", 16}, {"content", "b"}, {"single_word", true}});
  });
  for (const char* config :
       {R"({"tokenizer_class": "PreTrainedTokenizerFast"})",
        R"({"tokenizer_class": "PreTrainedTokenizerFast",
                                 "do_lower_case": true})",
        R"({"tokenizer_class": "TokenizersBackend"})", R"({"do_lower_case": false})"}) {
    directory.write("tokenizer_config.json", config);
    EXPECT_EQ(ids_of(Tokenizer::load(directory.path()), "Cafe café unaffable b"),
              (Ids{12, 11, 1, 16}))
        << config;
  }
}

// As transformers 4.57: the class BertTokenizerFast has the normaliser of its own arguments.
TEST(TokenizerFiles, TheNormaliserOfABertTokenizerIsThatOfItsConfig) {
  const ModelDirectory directory;
  directory.write_json([](Json& root) {
    root["normalizer"].update(
        {{"lowercase", false}, {"strip_accents", false}, {"handle_chinese_chars", false}});
  });
  const auto ids = [&] { return ids_of(Tokenizer::load(directory.path()), "Café a文"); };
  EXPECT_EQ(ids(), (Ids{10, 8, 13}));
  EXPECT_EQ(Tokenizer::load(directory.path()).class_name(), "");
  directory.write("config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(ids(), (Ids{10, 8, 13}));
  directory.write("tokenizer_config.json", R"({"strip_accents": false})");
  EXPECT_EQ(ids(), (Ids{11, 8, 13}));
  directory.write("tokenizer_config.json", R"({"tokenize_chinese_chars": false})");
  EXPECT_EQ(ids(), (Ids{10, 8, 18}));
  directory.write("config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(ids(), (Ids{1, 8, 18}));
  EXPECT_EQ(Tokenizer::load(directory.path()).class_name(), "PreTrainedTokenizerFast");
}

TEST(TokenizerFiles, SpecialTokensMapNamesSpecialTokens) {
  const ModelDirectory directory;
  directory.write("vocab.txt", "<pad>\n<unk>\n<s>\n</s>\na\n[MASK]\n");
  const auto ids = [&] { return Tokenizer::load(directory.path()).encode("a z <s>").ids; };
  directory.write("special_tokens_map.json",
                  R"({"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>",
                   "sep_token": "</s>"})");
  EXPECT_EQ(ids(), (Ids{2, 4, 1, 2, 3}));
  const std::string names =
      R"("pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "a", "sep_token": "</s>")";
  directory.write("tokenizer_config.json", "{" + names + "}");
  EXPECT_EQ(ids(), (Ids{2, 4, 1, 2, 3})) << "before tokenizer_config.json";
  directory.write("tokenizer_config.json",
                  "{" + names + R"(, "added_tokens_decoder": {"0": {"content": "<pad>"}}})");
  EXPECT_EQ(ids(), (Ids{4, 4, 1, 1, 1, 1, 3})) << "unless that has added_tokens_decoder";
}

TEST(TokenizerFiles, AcceptsBertProcessing) {
  const ModelDirectory directory;
  directory.write_json([](Json& root) { root["post_processor"] = {{"type", "BertProcessing"}}; });
  EXPECT_EQ(Tokenizer::load(directory.path()).encode("a").ids, (Ids{2, 8, 3}));
}

TEST(TokenizerFiles, NamesMissingFiles) {
  EXPECT_THAT(failure_of("/nowhere/model"),
              AllOf(HasSubstr("/nowhere/model"), HasSubstr("directory not found")));
  const ModelDirectory directory;
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("neither tokenizer.json nor vocab.txt"));
}

TEST(TokenizerFiles, RefusesAnInvalidVocabularyAndNamesTheLine) {
  const ModelDirectory directory;
  directory.write("vocab.txt", "");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("vocabulary is empty"));
  directory.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\na\n");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("line 7: found \"a\" as on line 5"));
  directory.write("vocab.txt", "[PAD]\nab\xFF\n");
  EXPECT_THAT(failure_of(directory.path()),
              HasSubstr("line 2: found invalid UTF-8 at byte 3 of the line"));
  directory.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\na\n");
  EXPECT_THAT(failure_of(directory.path()),
              AllOf(HasSubstr("vocab.txt"), HasSubstr("special token [SEP] is missing")));
  directory.write("vocab.txt", std::string(std::size_t{1} << 21, '\n') + "a\n");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("found more than 2097152 lines, the limit"));
}

TEST(TokenizerFiles, RefusesOtherTokenizers) {
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["type"] = "BPE"; }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("model.type is \"BPE\""),
                    HasSubstr("expected \"WordPiece\"")));
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"]["type"] = "NFKC"; }),
              HasSubstr("normalizer.type is \"NFKC\", expected \"BertNormalizer\""));
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"] = nullptr; }),
              HasSubstr("normalizer.type is missing"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["pre_tokenizer"]["type"] = "ByteLevel"; }),
              HasSubstr("expected \"BertPreTokenizer\""));
  EXPECT_THAT(failure_of_json(
                  [](Json& root) { root["post_processor"]["pair"][3]["Sequence"]["type_id"] = 0; }),
              HasSubstr("post_processor.pair"));
}

TEST(TokenizerFiles, RefusesToCutOrPadOnTheLeft) {
  EXPECT_THAT(failure_of_json([](Json& root) {
                root["truncation"] = {{"direction", "Left"}};
              }),
              HasSubstr("truncation.direction is \"Left\", expected \"Right\""));
  EXPECT_THAT(failure_of_json([](Json& root) {
                root["padding"] = {{"direction", "Left"}};
              }),
              HasSubstr("padding.direction is \"Left\", expected \"Right\""));
  for (const std::string name : {"truncation_side", "padding_side"}) {
    const ModelDirectory directory;
    directory.write_json();
    directory.write("tokenizer_config.json", Json{{name, "right"}}.dump());
    EXPECT_NO_THROW(read_tokenizer_files(directory.path()));
    directory.write("tokenizer_config.json", Json{{name, "left"}}.dump());
    EXPECT_THAT(failure_of(directory.path()),
                AllOf(HasSubstr("tokenizer_config.json"),
                      HasSubstr(name + " is \"left\", expected \"right\"")));
  }
}

TEST(TokenizerFiles, RefusesWrongTypesAndNumbers) {
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"]["lowercase"] = "yes"; }),
              HasSubstr("normalizer.lowercase is \"yes\", expected true or false"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"]["a"] = -1; }),
              HasSubstr("model.vocab[\"a\"] is -1, expected an integer"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"]["a"] = 7; }),
              HasSubstr("model.vocab: found id 7 for"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"] = Json::object(); }),
              HasSubstr("vocabulary is empty"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"] = Json::array(); }),
              HasSubstr("model.vocab is [], expected an object"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["added_tokens"][0].erase("content"); }),
              HasSubstr("added_tokens[0].content is missing"));
}

TEST(TokenizerFiles, RefusesDuplicateEntriesInTokenizerJson) {
  const ModelDirectory directory;
  directory.write("tokenizer.json",
                  R"({"model": {"type": "WordPiece", "vocab": {"a": 1, "a": 2}}})");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("model.vocab: found \"a\" twice"));
}

TEST(TokenizerFiles, ShowsShortAndPrintableTokens) {
  using namespace std::string_literals;
  const ModelDirectory directory;
  const std::string token = "a\0"s + std::string(100'000, 'b');
  const std::string shown = "\"a\\x00" + std::string(98, 'b') + "...\"";
  const std::string start = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  directory.write("vocab.txt", start + token + "\n" + token + "\n");
  EXPECT_THAT(failure_of(directory.path()),
              EndsWith("line 6: found " + shown + " as on line 5, expected distinct entries"));
  directory.write("vocab.txt", start);
  directory.write("added_tokens.json", Json({{token, -1}}).dump());
  EXPECT_THAT(failure_of(directory.path()),
              HasSubstr("added_tokens.json: " + shown + " is -1, expected an integer"));
  directory.write("added_tokens.json", "{}");
  directory.write("tokenizer_config.json", Json({{"cls_token", token}}).dump());
  EXPECT_THAT(failure_of(directory.path()),
              HasSubstr("the special token " + shown.substr(1, shown.size() - 2) + " is missing"));
  EXPECT_THAT(failure_of_json([&](Json& root) { root["model"]["vocab"][token] = -1; }),
              HasSubstr("model.vocab[" + shown + "] is -1, expected an integer"));
  EXPECT_THAT(failure_of_json([&](Json& root) { root["model"]["vocab"][token] = 7; }),
              HasSubstr("model.vocab: found id 7 for "));
}

TEST(TokenizerFiles, RefusesInvalidJsonAndNamesTheByte) {
  const ModelDirectory directory;
  directory.write("tokenizer.json", R"({"model": )");
  EXPECT_THAT(failure_of(directory.path()),
              AllOf(HasSubstr("is not valid JSON"), HasSubstr("byte 11")));
  directory.write("tokenizer.json", "[1]");
  EXPECT_THAT(failure_of(directory.path()), HasSubstr("the document is [1], expected an object"));
}

}  // namespace
}  // namespace tilewright::text
