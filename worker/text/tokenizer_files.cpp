#include "worker/text/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "common/base/files.h"
#include "common/base/json_events.h"
#include "common/base/printable.h"
#include "common/contract/model_files.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;
constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;
constexpr std::size_t kMaxAddedTokens = 10000;
constexpr const char* kDecoder = "added_tokens_decoder";

// What tokenizer_config.json and special_tokens_map.json say of the special tokens.
struct TokenNames {
  std::string unk = "[UNK]", sep = "[SEP]", pad = "[PAD]", cls = "[CLS]", mask = "[MASK]";
  std::unordered_set<std::string> further;  // additional_special_tokens

  bool contains(const std::string& token) const {
    return further.contains(token) || token == unk || token == sep || token == pad ||
           token == cls || token == mask;
  }
};

[[noreturn]] void fail(const fs::path& path, const std::string& message) {
  throw Failure(ExitCode::kModel, fmt::format("{}: {}", path.string(), message));
}

// A JSON document with its path for error messages.
struct Document {
  fs::path path;
  Json root;
  std::vector<std::pair<std::string, Json>> vocabulary = {};  // the entries of model.vocab

  // The value at a path of keys such as "model.type"; null if it is missing.
  const Json& at(std::string_view keys) const {
    static const Json kNull;
    const Json* value = &root;
    while (!keys.empty()) {
      const std::size_t dot = std::min(keys.find('.'), keys.size());
      const std::string key(keys.substr(0, dot));
      if (!value->is_object() || !value->contains(key)) return kNull;
      value = &(*value)[key];
      keys.remove_prefix(std::min(dot + 1, keys.size()));
    }
    return *value;
  }

  [[noreturn]] void reject(std::string_view where, const Json& found, const char* expected) const {
    const std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(path, fmt::format("{} is {}, expected {}", where,
                           found.is_null() ? "missing or null" : excerpt(text),
                           excerpt(expected, kLineExcerpt)));
  }

  bool boolean(std::string_view keys, bool default_value) const {
    const Json& value = at(keys);
    if (value.is_null()) return default_value;
    if (!value.is_boolean()) reject(keys, value, "true or false");
    return value.get<bool>();
  }

  void require(std::string_view keys, const std::string& expected) const {
    if (at(keys) != expected) reject(keys, at(keys), fmt::format("\"{}\"", expected).c_str());
  }
  void require_if_present(std::string_view keys, const std::string& expected) const {
    if (!at(keys).is_null()) require(keys, expected);
  }
};

// Builds a document from the parser's events. The entries of model.vocab go to a list and not into
// the document, which has an empty object for them: a vocabulary as a tree takes most of the time
// of loading a tokenizer. Refuses entries that occur twice, of which a tree would keep only one.
class DocumentReader final : public Json::json_sax_t {
 public:
  // `entries`: expected in the vocabulary.
  DocumentReader(Document& document, std::size_t entries) : document_(document) {
    seen_.reserve(entries);
    document.vocabulary.reserve(entries);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON text has none
  bool key(std::string& name) override {
    key_ = std::move(name);
    if (depth() == 1) section_ = key_;
    if (depth() == 2) field_ = key_;
    if (in_vocabulary() && !seen_.insert(key_).second) {
      fail(document_.path, fmt::format("model.vocab: found {} twice, expected distinct entries",
                                       quoted_excerpt(key_)));
    }
    return true;
  }
  bool start_object(std::size_t) override {
    // Of two with one name the last counts.
    if (depth() == 2 && section_ == "model" && field_ == "vocab") document_.vocabulary.clear();
    return open(Json::object());
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const Json::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      fail(document_.path, "is not valid JSON: found a number out of range");
    }
    fail(document_.path, fmt::format("is not valid JSON: syntax error at byte {}", position));
  }

 private:
  std::size_t depth() const { return open_.size(); }
  // Whether the next value is an entry of model.vocab.
  bool in_vocabulary() const {
    return depth() == 3 && section_ == "model" && field_ == "vocab" && open_.back()->is_object() &&
           open_[1]->is_object() && open_[0]->is_object();
  }

  bool add(Json value) {
    insert(std::move(value));
    return true;
  }

  Json* insert(Json value) {
    if (open_.empty()) {
      document_.root = std::move(value);
      return &document_.root;
    }
    if (in_vocabulary()) {
      document_.vocabulary.emplace_back(std::move(key_), std::move(value));
      return &document_.vocabulary.back().second;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  bool open(Json empty) {
    if (depth() > kMaxJsonDepth) {
      fail(document_.path, fmt::format("nests deeper than {} levels", kMaxJsonDepth));
    }
    // The parent is the last element of its parents, so pointers stay valid while it is open.
    open_.push_back(insert(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Document& document_;
  std::vector<Json*> open_;  // the objects and arrays that enclose the next value
  std::string key_;
  std::string section_, field_;  // the last keys of depth 1 and 2
  std::unordered_set<std::string> seen_;
};

Document read_json(const fs::path& path) {
  const std::string content = read_regular_file(path, kMaxFileBytes, ExitCode::kModel).or_throw();
  Document document{path, {}};
  constexpr std::size_t kBytesPerEntry = 14;  // of published vocabularies
  constexpr std::size_t kMostExpected = std::size_t{1} << 17;
  DocumentReader reader(document, std::min(content.size() / kBytesPerEntry, kMostExpected));
  Json::sax_parse(content, &reader);
  if (!document.root.is_object()) document.reject("the document", document.root, "an object");
  return document;
}

// `where`: returns the name of the value for messages.
template <typename Where>
std::int32_t read_id(const Document& document, const Where& where, const Json& value) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
      value.get<std::int64_t>() > kMaxId) {
    document.reject(where(), value, "an integer from 0 to 16777215");
  }
  return value.get<std::int32_t>();
}

void check_bounds(const fs::path& path, const TokenizerSpec& spec) {
  std::size_t bytes = spec.continuation.size();
  for (const auto& entry : spec.vocabulary) bytes += entry.first.size();
  if (spec.vocabulary.empty()) fail(path, "the vocabulary is empty, expected at least one entry");
  if (spec.vocabulary.size() > kMaxVocabularyEntries || bytes > kMaxVocabularyBytes) {
    fail(path,
         fmt::format("the vocabulary has {} entries of {} bytes, expected at most {} of {}",
                     spec.vocabulary.size(), bytes, kMaxVocabularyEntries, kMaxVocabularyBytes));
  }
}

void read_vocabulary(const Document& document, TokenizerSpec& spec) {
  const Json& vocabulary = document.at("model.vocab");
  if (!vocabulary.is_object()) document.reject("model.vocab", vocabulary, "an object");
  std::unordered_set<std::int32_t> taken;
  taken.reserve(document.vocabulary.size());
  for (const auto& entry : document.vocabulary) {
    const std::string& token = entry.first;
    const std::int32_t id = read_id(
        document, [&] { return fmt::format("model.vocab[{}]", quoted_excerpt(token)); },
        entry.second);
    if (!taken.insert(id).second) {
      fail(document.path, fmt::format("model.vocab: found id {} for {} and another entry, "
                                      "expected distinct ids",
                                      id, quoted_excerpt(token)));
    }
    spec.vocabulary.emplace_back(token, id);
  }
}

AddedToken read_added_token(const Document& document, const std::string& where, const Json& found,
                            const Json& id) {
  if (!found.is_object()) document.reject(where, found, "an object");
  const Document entry{document.path, found};
  const Json& content = entry.at("content");
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    document.reject(where + ".content", content, "a non-empty string");
  }
  return {.id = read_id(
              document, [&] { return where + ".id"; }, id),
          .content = content.get<std::string>(),
          .single_word = entry.boolean("single_word", false),
          .lstrip = entry.boolean("lstrip", false),
          .rstrip = entry.boolean("rstrip", false),
          .normalized = entry.boolean("normalized", false)};
}

void read_added_tokens(const Document& document, TokenizerSpec& spec) {
  const Json& added = document.at("added_tokens");
  if (added.is_null()) return;
  if (!added.is_array() || added.size() > kMaxAddedTokens) {
    document.reject("added_tokens", added, "a list of at most 10000 tokens");
  }
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const Json& id = added[i].is_object() && added[i].contains("id") ? added[i]["id"] : Json();
    spec.added_tokens.push_back(read_added_token(document, where, added[i], id));
  }
}

// The content of a token, which is a string or an object; `if_null` if it is null.
std::string token_content(const Document& document, std::string_view where, const Json& token,
                          const std::string& if_null) {
  const Json& content = token.is_object() && token.contains("content") ? token["content"] : token;
  if (content.is_null()) return if_null;
  if (!content.is_string()) document.reject(where, content, "a token");
  return content.get<std::string>();
}

// Where the document names tokens, its names take precedence over those found before.
void read_special_tokens(const Document& document, TokenNames& names) {
  for (const auto& [key, name] : {std::pair("unk_token", &names.unk),
                                  {"sep_token", &names.sep},
                                  {"pad_token", &names.pad},
                                  {"cls_token", &names.cls},
                                  {"mask_token", &names.mask}}) {
    *name = token_content(document, key, document.at(key), *name);
  }
  constexpr const char* kFurther = "additional_special_tokens";
  const Json& further = document.at(kFurther);
  if (further.is_null()) return;
  if (!further.is_array() || further.size() > kMaxAddedTokens) {
    document.reject(kFurther, further, "a list of at most 10000 tokens");
  }
  names.further.clear();
  for (const Json& token : further) {
    names.further.insert(token_content(document, kFurther, token, ""));
  }
}

// The tokens that a tokenizer of vocab.txt has beyond it: added_tokens_decoder in
// tokenizer_config.json, else added_tokens.json, whose tokens have the flags that transformers
// gives them.
void read_tokens_beyond_vocab_txt(const Document& config, const TokenNames& names,
                                  const fs::path& model_dir, TokenizerSpec& spec) {
  const auto check = [](const Document& document, std::string_view where, const Json& tokens) {
    if (!tokens.is_object() || tokens.size() > kMaxAddedTokens) {
      document.reject(where, tokens, "an object with at most 10000 tokens");
    }
  };
  if (const Json& tokens = config.at(kDecoder); !tokens.is_null()) {
    check(config, kDecoder, tokens);
    for (const auto& [key, token] : tokens.items()) {
      const bool digits = !key.empty() && key.size() <= 8 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      const Json id = digits ? Json(std::stoll(key)) : Json(key);
      spec.added_tokens.push_back(read_added_token(
          config, fmt::format("{}[{}]", kDecoder, quoted_excerpt(key)), token, id));
    }
    return;
  }
  const fs::path path = model_dir / model_files::kAddedTokens;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const Document document = read_json(path);
  check(document, "the document", document.root);
  for (const auto& [content, id] : document.root.items()) {
    const auto where = [&, &token = content] { return quoted_excerpt(token); };
    if (content.empty()) document.reject("a token", content, "a non-empty string");
    spec.added_tokens.push_back({.id = read_id(document, where, id),
                                 .content = content,
                                 .normalized = !names.contains(content)});
  }
}

// The document that names the tokenizer's class, if one does: tokenizer_config.json, else
// config.json.
Document document_of_class(const Document& config, const fs::path& model_dir) {
  const fs::path path = model_dir / model_files::kConfig;
  std::error_code ignored;
  return config.at(kTokenizerClass).is_null() && fs::exists(path, ignored) ? read_json(path)
                                                                           : config;
}

// vocab.txt does not say how texts are split into words. Other classes, such as Japanese ones,
// split them in other ways.
void check_class(const Document& config, const Document& of_class) {
  const auto check = [](const Document& document, const char* key, auto&& accepts,
                        const char* expected) {
    const Json& value = document.at(key);
    if (!value.is_null() && !(value.is_string() && accepts(value.get_ref<const std::string&>()))) {
      document.reject(key, value, expected);
    }
  };
  const auto is_bert = [](const std::string& name) {
    return name.starts_with("BertTokenizer") || name.starts_with("DistilBertTokenizer");
  };
  constexpr const char* kClasses =
      "BertTokenizer or DistilBertTokenizer for a model without tokenizer.json";
  const auto is = [](std::string_view expected) {
    return [expected](const std::string& name) { return name == expected; };
  };
  check(config, "word_tokenizer_type", is("basic"), "\"basic\"");
  check(config, "subword_tokenizer_type", is("wordpiece"), "\"wordpiece\"");
  check(of_class, kTokenizerClass, is_bert, kClasses);
}

// Formats the list of a TemplateProcessing: "[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1".
std::string template_text(const Json& list) {
  std::string text;
  if (!list.is_array()) return text;
  for (const Json& step : list) {
    if (!step.is_object() || step.size() != 1) return {};
    const Json& body = step.begin().value();
    if (!body.is_object() || !body.contains("id") || !body.contains("type_id")) return {};
    text +=
        fmt::format("{}{}:{}", text.empty() ? "" : " ", body["id"].dump(), body["type_id"].dump());
  }
  return text;
}

// Tokenizer implements one template; refuses files with another one.
void check_post_processor(const Document& document, const TokenNames& names) {
  const Json& type = document.at("post_processor.type");
  if (document.at("post_processor").is_null() || type == "BertProcessing") return;
  document.require("post_processor.type", "TemplateProcessing");
  const std::string cls = Json(names.cls).dump() + ":0";
  const std::string sep = Json(names.sep).dump();
  const std::string single = fmt::format("{} \"A\":0 {}:0", cls, sep);
  const std::string pair = fmt::format("{} \"B\":1 {}:1", single, sep);
  for (const auto& [key, expected] :
       {std::pair{"post_processor.single", single}, std::pair{"post_processor.pair", pair}}) {
    if (template_text(document.at(key)) != expected) {
      document.reject(key, document.at(key), expected.c_str());
    }
  }
}

void read_tokenizer_json(const Document& document, const TokenNames& names, TokenizerSpec& spec) {
  const Json& type = document.at("model.type");
  if (type != "WordPiece") {
    document.reject("model.type", type, "\"WordPiece\", the model of a BERT tokenizer");
  }
  document.require("normalizer.type", "BertNormalizer");
  document.require("pre_tokenizer.type", "BertPreTokenizer");
  check_post_processor(document, names);
  spec.normaliser.clean_text = document.boolean("normalizer.clean_text", true);
  spec.normaliser.handle_chinese_chars = document.boolean("normalizer.handle_chinese_chars", true);
  spec.normaliser.lowercase = document.boolean("normalizer.lowercase", true);
  if (!document.at("normalizer.strip_accents").is_null()) {
    spec.normaliser.strip_accents = document.boolean("normalizer.strip_accents", true);
  }
  if (const Json& prefix = document.at("model.continuing_subword_prefix"); !prefix.is_null()) {
    if (!prefix.is_string()) document.reject("model.continuing_subword_prefix", prefix, "a string");
    spec.continuation = prefix.get<std::string>();
  }
  if (const Json& most = document.at("model.max_input_chars_per_word"); !most.is_null()) {
    spec.max_characters_per_word = static_cast<std::size_t>(read_id(
        document, [] { return "model.max_input_chars_per_word"; }, most));
  }
  // Long sequences are cut at the end; none is padded.
  document.require_if_present("truncation.direction", "Right");
  document.require_if_present("padding.direction", "Right");
  read_vocabulary(document, spec);
  read_added_tokens(document, spec);
}

void read_vocab_txt(const fs::path& path, TokenizerSpec& spec) {
  const std::string content = read_regular_file(path, kMaxFileBytes, ExitCode::kModel).or_throw();
  std::unordered_map<std::string_view, std::size_t> lines;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view token(content.data() + begin, end - begin);
    begin = end + 1;
    ++line;
    if (token.ends_with('\r')) token.remove_suffix(1);
    if (const auto bad = find_invalid_utf8(token)) {
      fail(path,
           fmt::format("line {}: found invalid UTF-8 at byte {} of the line, expected a token",
                       line, *bad + 1));
    }
    if (token.empty()) continue;  // an empty line has an id, but no word matches it
    const auto [first, fresh] = lines.emplace(token, line);
    if (!fresh) {
      fail(path, fmt::format("line {}: found {} as on line {}, expected distinct entries", line,
                             quoted_excerpt(token), first->second));
    }
    if (line > kMaxVocabularyEntries) {
      fail(path, fmt::format("found more than {} lines, the limit", kMaxVocabularyEntries));
    }
    spec.vocabulary.emplace_back(token, static_cast<std::int32_t>(line - 1));
  }
}

// BertTokenizerFast and DistilBertTokenizerFast replace the normaliser of tokenizer.json by that of
// their arguments.
void read_normaliser(const Document& config, NormaliserOptions& options) {
  options.lowercase = config.boolean("do_lower_case", true);
  options.handle_chinese_chars = config.boolean("tokenize_chinese_chars", true);
  options.strip_accents.reset();
  if (!config.at("strip_accents").is_null()) {
    options.strip_accents = config.boolean("strip_accents", true);
  }
}

void read_model_max_length(const Document& config, TokenizerSpec& spec) {
  const char* key = config.at("model_max_length").is_null() ? "max_len" : "model_max_length";
  const Json& value = config.at(key);
  if (value.is_null()) return;
  const double tokens = value.is_number() ? value.get<double>() : 0;
  if (tokens < 1) config.reject(key, value, "a positive number of tokens");
  // transformers writes 10^30 for no limit.
  if (tokens < 1e9) spec.model_max_length = static_cast<std::int64_t>(tokens);
}

}  // namespace

TokenizerSpec read_tokenizer_files(const fs::path& model_dir) {
  std::error_code ignored;
  if (!fs::is_directory(model_dir, ignored)) {
    fail(model_dir,
         "directory not found; expected a model directory with tokenizer.json or vocab.txt");
  }
  const fs::path json = model_dir / model_files::kTokenizer;
  const fs::path vocab = model_dir / model_files::kVocabulary;
  const fs::path config_path = model_dir / model_files::kTokenizerConfig;
  Document config{config_path, Json::object()};
  if (fs::exists(config_path, ignored)) config = read_json(config_path);
  config.require_if_present("truncation_side", "right");
  config.require_if_present("padding_side", "right");
  TokenNames names;
  read_special_tokens(config, names);
  const fs::path special_path = model_dir / model_files::kSpecialTokens;
  if (config.at(kDecoder).is_null() && fs::exists(special_path, ignored)) {
    read_special_tokens(read_json(special_path), names);
  }
  const Document of_class = document_of_class(config, model_dir);

  TokenizerSpec spec;
  const bool from_json = fs::exists(json, ignored);
  const fs::path& source = from_json ? json : vocab;
  if (from_json) {
    const Document document = read_json(json);
    names.unk =
        token_content(document, "model.unk_token", document.at("model.unk_token"), names.unk);
    read_tokenizer_json(document, names, spec);
  } else if (fs::exists(vocab, ignored)) {
    check_class(config, of_class);
    read_vocab_txt(vocab, spec);
    read_tokens_beyond_vocab_txt(config, names, model_dir, spec);
  } else {
    fail(model_dir, "found neither tokenizer.json nor vocab.txt, expected one of them");
  }
  const Json& class_name = of_class.at(kTokenizerClass);
  if (class_name.is_string()) spec.class_name = class_name.get<std::string>();
  const bool keeps_normaliser =
      spec.class_name == "PreTrainedTokenizerFast" || spec.class_name == "TokenizersBackend";
  if (!from_json || !keeps_normaliser) {
    read_normaliser(config, spec.normaliser);
  }
  read_model_max_length(config, spec);
  check_bounds(source, spec);

  // Of the last added token with this content, else of the entry.
  const auto find = [&](const std::string& name) {
    std::int32_t id = -1;
    for (const auto& entry : spec.vocabulary) {
      if (entry.first == name) id = entry.second;
    }
    for (const AddedToken& token : spec.added_tokens) {
      if (token.content == name) id = token.id;
    }
    return id;
  };
  spec.special = {find(names.cls), find(names.sep), find(names.pad), find(names.unk),
                  find(names.mask)};
  for (const std::string* name : {&names.unk, &names.cls, &names.sep, &names.pad}) {
    if (find(*name) < 0) {
      fail(source, fmt::format("the special token {} is missing; expected it in the vocabulary",
                               excerpt(*name)));
    }
  }
  if (!from_json) {
    for (const std::string* name : {&names.pad, &names.unk, &names.cls, &names.sep, &names.mask}) {
      const bool added = std::ranges::find(spec.added_tokens, *name, &AddedToken::content) !=
                         spec.added_tokens.end();
      if (!added && find(*name) >= 0) {
        spec.added_tokens.push_back({.id = find(*name), .content = *name});
      }
    }
  }
  return spec;
}

}  // namespace tilewright::text
