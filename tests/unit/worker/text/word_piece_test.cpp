#include "worker/text/word_piece.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tilewright::text {
namespace {

using Ids = std::vector<std::int32_t>;

WordPiece make(std::vector<std::pair<std::string, std::int32_t>> entries,
               std::size_t max_characters = 100) {
  return WordPiece(entries, {.unknown_id = 0, .max_characters = max_characters});
}

Ids split(const WordPiece& pieces, const std::string& word) {
  Ids ids = {99};  // existing content must not change
  pieces.split(word, word.size(), ids);
  EXPECT_EQ(ids.front(), 99);
  ids.erase(ids.begin());
  return ids;
}

TEST(WordPiece, SplitsWordsIntoTheLongestPieces) {
  const WordPiece pieces = make({{"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}, {"una", 5}});
  EXPECT_EQ(split(pieces, "unaffable"), (Ids{0})) << "the longest match una leaves ffable";
  const WordPiece without = make({{"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}});
  EXPECT_EQ(split(without, "unaffable"), (Ids{1, 2, 3}));
  EXPECT_EQ(split(without, "una"), (Ids{1, 4}));
}

TEST(WordPiece, AWordWithOneUnknownPieceIsUnknown) {
  const WordPiece pieces = make({{"un", 1}, {"##aff", 2}});
  EXPECT_EQ(split(pieces, "unaffz"), (Ids{0}));
  EXPECT_EQ(split(pieces, "zun"), (Ids{0}));
  EXPECT_EQ(split(pieces, "aff"), (Ids{0})) << "##aff cannot begin a word";
  EXPECT_EQ(split(pieces, "unun"), (Ids{0})) << "un cannot continue a word";
}

TEST(WordPiece, WordsWithTooManyCharactersAreUnknown) {
  const WordPiece pieces = make({{"a", 1}, {"##a", 2}}, 3);
  EXPECT_EQ(split(pieces, "aaa"), (Ids{1, 2, 2}));
  EXPECT_EQ(split(pieces, "aaaa"), (Ids{0}));
}

TEST(WordPiece, APieceIsNeverEmpty) {
  const WordPiece pieces = make({{"a", 1}, {"##", 2}, {"", 3}});
  EXPECT_EQ(split(pieces, "ab"), (Ids{0}));
  EXPECT_EQ(split(pieces, "##"), (Ids{2})) << "the prefix alone is an entry and a word";
}

TEST(WordPiece, NeverSplitsInsideACharacter) {
  const WordPiece pieces = make({{"é", 1}, {"##è", 2}});  // both begin with the byte C3
  Ids ids;
  pieces.split("éè", 2, ids);
  EXPECT_EQ(ids, (Ids{1, 2}));
}

TEST(WordPiece, FindsAllOfThousandsOfEntries) {
  std::vector<std::pair<std::string, std::int32_t>> entries;
  for (int i = 0; i < 5000; ++i) entries.emplace_back(fmt::format("w{}e", i), i + 1);
  const WordPiece pieces = make(entries);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(split(pieces, fmt::format("w{}e", i)), (Ids{i + 1}));
    ASSERT_EQ(split(pieces, fmt::format("w{}", i)), (Ids{0}));
  }
}

}  // namespace
}  // namespace tilewright::text
