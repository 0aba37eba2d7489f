#include "worker/text/added_tokens.h"

#include <gtest/gtest.h>

#include <random>

namespace tilewright::text {
namespace {

std::string random_word(std::mt19937& random, std::size_t longest, unsigned letters) {
  std::string word(1 + random() % longest, ' ');
  for (char& c : word) c = static_cast<char>('a' + random() % letters);
  return word;
}

// The ids and texts of the parts, by comparing each token at each position.
std::vector<std::pair<std::string, int>> split_slowly(const std::vector<AddedToken>& tokens,
                                                      std::string_view text) {
  std::vector<std::pair<std::string, int>> parts;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& token : tokens) {
      const bool longer = longest == nullptr || token.content.size() > longest->content.size();
      if (longer && text.substr(at).starts_with(token.content)) longest = &token;
    }
    if (longest != nullptr) {
      parts.emplace_back(longest->content, longest->id);
      at += longest->content.size();
    } else {
      if (parts.empty() || parts.back().second >= 0) parts.emplace_back("", -1);
      parts.back().first += text[at++];
    }
  }
  return parts;
}

TEST(AddedTokens, MatchTheLongestOfThousandsAtEachPosition) {
  std::mt19937 random(7);
  for (const auto& [count, longest, letters] :
       {std::tuple{5, 4U, 2U}, {40, 5U, 3U}, {10'000, 6U, 26U}}) {
    std::vector<AddedToken> tokens;
    tokens.reserve(static_cast<std::size_t>(count) + 1);
    for (int id = 0; id < count; ++id) {
      tokens.push_back({.id = id, .content = random_word(random, longest, letters)});
    }
    tokens.push_back({.id = count, .content = "\xc3\xa9t\xc3\xa9"});
    const AddedTokens added(tokens);
    for (int i = 0; i < 50; ++i) {
      const std::string text = random_word(random, 60, letters + 1) + "\xc3\xa9t\xc3\xa9\xc3";
      std::vector<AddedTokens::Part> parts;
      added.split(text, parts);
      std::vector<std::pair<std::string, int>> found;
      found.reserve(parts.size());
      for (const auto& part : parts) found.emplace_back(part.text, part.id.value_or(-1));
      EXPECT_EQ(found, split_slowly(tokens, text)) << text;
    }
  }
}

}  // namespace
}  // namespace tilewright::text
