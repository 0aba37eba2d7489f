#include "worker/checkpoint/model_config.h"

#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {
namespace {

// Larger than in any BERT model, and small enough that the product of two sizes does not overflow.
constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::int64_t kMaxLabels = 1 << 16;

std::vector<std::string> default_labels(std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(fmt::format("LABEL_{}", i));
  return labels;
}

std::vector<std::string> labels_of(const JsonFields& fields) {
  if (!fields.has("id2label"))
    return default_labels(fields.integer("num_labels", 1, kMaxLabels, 2));
  const JsonFields names = fields.object("id2label");
  const std::size_t count = names.json().size();
  if (count == 0 || count > static_cast<std::size_t>(kMaxLabels)) {
    fields.fail("id2label", fmt::format("1 to {} labels", kMaxLabels));
  }
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < count; ++i) labels.push_back(names.string(std::to_string(i)));
  return labels;
}

void require_architecture(const JsonFields& fields) {
  if (fields.string("model_type", "") != "bert") fields.fail("model_type", "\"bert\"");
  if (fields.string("hidden_act", "gelu") != "gelu") {
    fields.fail("hidden_act", "\"gelu\" (exact GELU with erf)");
  }
  if (fields.string("position_embedding_type", "absolute") != "absolute") {
    fields.fail("position_embedding_type", "\"absolute\"");
  }
  if (fields.boolean("is_decoder", false)) fields.fail("is_decoder", "false (an encoder)");
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Failure(ExitCode::kModel, fmt::format("{}: model directory not found; expected one with "
                                                "config.json and model.safetensors",
                                                path.string()));
  }
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  const JsonFields fields(is_directory ? path / "config.json" : path, ExitCode::kModel);
  require_architecture(fields);

  ModelConfig out;
  nn::EncoderConfig& encoder = out.encoder;
  encoder.vocab_size = fields.integer("vocab_size", 1, kMaxSize);
  encoder.hidden_size = fields.integer("hidden_size", 1, kMaxSize);
  encoder.num_hidden_layers = fields.integer("num_hidden_layers", 1, 1024);
  encoder.num_attention_heads = fields.integer("num_attention_heads", 1, kMaxSize);
  encoder.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize);
  encoder.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMaxSize);
  encoder.type_vocab_size = fields.integer("type_vocab_size", 1, kMaxSize);
  if (encoder.hidden_size % encoder.num_attention_heads != 0) {
    fields.fail("hidden_size", fmt::format("a multiple of num_attention_heads, which is {}",
                                           encoder.num_attention_heads));
  }
  constexpr double kBelowOne = 0.999;
  encoder.layer_norm_eps = static_cast<float>(fields.number("layer_norm_eps", 1e-30, 1, 1e-12));
  const double hidden_dropout = fields.number("hidden_dropout_prob", 0, kBelowOne, 0.1);
  encoder.hidden_dropout_prob = static_cast<float>(hidden_dropout);
  encoder.attention_probs_dropout_prob =
      static_cast<float>(fields.number("attention_probs_dropout_prob", 0, kBelowOne, 0.1));
  encoder.classifier_dropout =
      static_cast<float>(fields.number("classifier_dropout", 0, kBelowOne, hidden_dropout));
  encoder.initializer_range = static_cast<float>(fields.number("initializer_range", 0, 10, 0.02));
  out.labels = labels_of(fields);
  encoder.num_labels = static_cast<std::int64_t>(out.labels.size());
  out.json = fields.json().dump();
  return out;
}

std::string model_config_json(const std::string& source_json,
                              const std::vector<std::string>& labels) {
  auto json = nlohmann::json::parse(source_json);
  json["architectures"] = {"BertForSequenceClassification"};
  json["id2label"] = nlohmann::json::object();
  json["label2id"] = nlohmann::json::object();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    json["id2label"][std::to_string(i)] = labels[i];
    json["label2id"][labels[i]] = i;
  }
  json.erase("num_labels");  // implied by id2label
  json["problem_type"] = nullptr;
  if (labels.size() > 1) json["problem_type"] = "single_label_classification";
  json.erase("dtype");
  json["torch_dtype"] = "float32";  // read by transformers 4 and 5
  return json.dump(2) + "\n";
}

}  // namespace tilewright::checkpoint
