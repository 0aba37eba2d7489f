#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/text/tokenizer.h"

namespace tilewright::fuzz {
namespace {

void check_encoding(const text::Tokenizer& tokenizer, const text::Encoding& encoding,
                    std::size_t limit) {
  TW_CHECK(encoding.first_segment <= encoding.ids.size(), "a segment beyond the end");
  TW_CHECK(encoding.ids.size() <= limit, "{} tokens", encoding.ids.size());
  TW_CHECK(!encoding.ids.empty() && encoding.ids.front() == tokenizer.special().cls,
           "does not begin with [CLS]");
  TW_CHECK(encoding.ids.back() == tokenizer.special().sep, "does not end with [SEP]");
  for (const std::int32_t id : encoding.ids) {
    TW_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {} of {}", id, tokenizer.vocab_size());
  }
}

}  // namespace

int fuzz_tokenizer(const std::uint8_t* data, std::size_t size) {
  clear_scratch();
  std::string_view input = "A man's caf\xC3\xA9, \xE4\xB8\xAD\xE6\x96\x87 [MASK] unaffable\t1.5";
  for (const auto& [name, content] : split_files(as_text(data, size))) {
    if (name == "input") {
      input = content;
    } else if (name == "tokenizer.json" || name == "vocab.txt" || name == "tokenizer_config.json") {
      write_scratch(name, content);
    }
  }
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(scratch_directory());
    std::vector<std::int32_t> ids;
    tokenizer.tokenize(input, ids);
    check_encoding(tokenizer, tokenizer.encode(input), text::Tokenizer::kNoLimit);
    check_encoding(tokenizer, tokenizer.encode(input, 2), 2);
    check_encoding(
        tokenizer,
        tokenizer.encode_pair(input.substr(0, input.size() / 2), input.substr(input.size() / 2), 9),
        9);
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
  return 0;
}

}  // namespace tilewright::fuzz
