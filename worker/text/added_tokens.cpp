#include "worker/text/added_tokens.h"

#include <algorithm>
#include <span>
#include <utility>

#include "worker/text/characters.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

bool is_adjacent_to_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word_character(decode_utf8_before(text, begin).code_point)) ||
         (end < text.size() && is_word_character(decode_utf8(text, end).code_point));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::stable_sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& token : tokens_) {
    first_bytes_[static_cast<unsigned char>(token.content[0])] = true;
  }
}

const AddedToken* AddedTokens::token_at(std::string_view text, std::size_t at) const {
  const AddedToken* longest = nullptr;
  std::span<const AddedToken> candidates = tokens_;  // which begin with the `matched` bytes
  for (std::size_t matched = 0; !candidates.empty(); ++matched) {
    if (candidates.front().content.size() == matched) longest = &candidates.front();
    if (at + matched == text.size()) break;
    const auto next_byte = [matched](const AddedToken& token) {
      return matched < token.content.size() ? static_cast<unsigned char>(token.content[matched])
                                            : -1;
    };
    const int byte = static_cast<unsigned char>(text[at + matched]);
    candidates = {std::ranges::lower_bound(candidates, byte, {}, next_byte),
                  std::ranges::upper_bound(candidates, byte, {}, next_byte)};
  }
  return longest;
}

void AddedTokens::split(std::string_view text, std::vector<Part>& parts) const {
  parts.clear();
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token =
        first_bytes_[static_cast<unsigned char>(text[at])] ? token_at(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    at += token->content.size();  // also if single_word rejects the match
    std::size_t end = at;
    if (token->single_word && is_adjacent_to_word(text, begin, end)) continue;
    while (token->lstrip && begin > done) {
      const Decoded last = decode_utf8_before(text, begin);
      if (!is_whitespace(last.code_point)) break;
      begin -= last.size;
    }
    while (token->rstrip && end < text.size()) {
      const Decoded next = decode_utf8(text, end);
      if (!is_whitespace(next.code_point)) break;
      end += next.size;
    }
    if (done < begin) parts.push_back({text.substr(done, begin - done), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
}

}  // namespace tilewright::text
