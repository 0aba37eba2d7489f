#include "worker/checkpoint/model_config.h"

#include <algorithm>

#include "common/contract/model_files.h"
#include "worker/checkpoint/json_fields.h"
#include "worker/kernels/ops.h"

namespace tilewright::checkpoint {
namespace {

// Larger than in any BERT model, and small enough that the product of two sizes does not overflow.
constexpr std::int64_t kMaxSize = 1 << 24;
constexpr const char* kFinetuningTask = "finetuning_task";
constexpr const char* kAnswersQuestions = "ForQuestionAnswering";  // ends the name of a class

std::vector<std::string> default_labels(std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(fmt::format("LABEL_{}", i));
  return labels;
}

std::vector<std::string> labels_of(const JsonFields& fields) {
  if (!fields.has("id2label"))
    return default_labels(fields.integer("num_labels", 1, std::int64_t{kMaxLabels}, 2));
  const JsonFields names = fields.object("id2label");
  const std::size_t count = names.json().size();
  if (count == 0 || count > kMaxLabels) {
    fields.fail("id2label", fmt::format("1 to {} labels", kMaxLabels));
  }
  std::vector<std::string> labels;
  // run_glue.py writes labels that are numbers or booleans in the data as such.
  for (std::size_t i = 0; i < count; ++i) labels.push_back(names.text(std::to_string(i)));
  return labels;
}

// Whether the class is of the family: "BertModel", "BertForMaskedLM".
bool has_class(const nn::ModelFamily& family, const nlohmann::json& architecture) {
  if (!architecture.is_string()) return false;
  std::string_view name = architecture.get_ref<const std::string&>();
  if (!name.starts_with(family.class_name)) return false;
  name.remove_prefix(family.class_name.size());
  return name.starts_with("For") || name == "Model";
}

// Models of 2019 have no model_type; most have architectures. Where transformers guesses the type
// from the name of the directory, the name of a class says it.
const nn::ModelFamily* find_family(const JsonFields& fields) {
  const std::string model_type = fields.string("model_type", "");
  nlohmann::json classes;
  if (!fields.json().contains("model_type")) {
    classes = fields.json().value("architectures", nlohmann::json());
  }
  for (const nn::ModelFamily* family : nn::kModelFamilies) {
    if (family->model_type == model_type) return family;
    if (classes.size() == 1 && has_class(*family, classes.front())) return family;
  }
  return nullptr;
}

const nn::ModelFamily& require_architecture(const JsonFields& fields) {
  const nn::ModelFamily* const family = find_family(fields);
  if (family == nullptr) {
    std::string known;
    for (const nn::ModelFamily* each : nn::kModelFamilies) {
      known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", each->model_type);
    }
    fields.fail("model_type", known);
  }
  const std::string activation(family->fields.hidden_act);
  const std::string name = fields.string(activation, "gelu");
  if (name != "gelu" && name != "gelu_python") {  // the same formula
    fields.fail(activation, "\"gelu\" (exact GELU with erf)");
  }
  if (fields.string("position_embedding_type", "absolute") != "absolute") {
    fields.fail("position_embedding_type", "\"absolute\"");
  }
  if (fields.boolean("is_decoder", false)) fields.fail("is_decoder", "false (an encoder)");
  return *family;
}

}  // namespace

std::filesystem::path config_file(const std::filesystem::path& directory_or_file) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(directory_or_file, ignored);
  return is_directory ? directory_or_file / model_files::kConfig : directory_or_file;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Failure(ExitCode::kModel, fmt::format("{}: model directory not found; expected one with "
                                                "config.json and model.safetensors",
                                                path.string()));
  }
  const JsonFields fields(config_file(path), ExitCode::kModel);
  const nn::ModelFamily& family = require_architecture(fields);
  const nn::ConfigFields& names = family.fields;
  // A field that the family does not have has the value `fallback`.
  const auto integer = [&](std::string_view name, std::int64_t max, std::int64_t fallback = 0) {
    return name.empty() ? fallback : fields.integer(std::string(name), 1, max);
  };
  const auto number = [&](std::string_view name, double min, double max, double fallback) {
    return static_cast<float>(name.empty() ? fallback
                                           : fields.number(std::string(name), min, max, fallback));
  };

  ModelConfig out;
  nn::EncoderConfig& encoder = out.encoder;
  encoder.family = &family;
  encoder.vocab_size = fields.integer("vocab_size", 1, kMaxSize);
  encoder.hidden_size = integer(names.hidden_size, kMaxSize);
  encoder.num_hidden_layers = integer(names.num_hidden_layers, 1024);
  encoder.num_attention_heads = integer(names.num_attention_heads, kMaxSize);
  encoder.intermediate_size = integer(names.intermediate_size, kMaxSize);
  encoder.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMaxSize);
  encoder.type_vocab_size = integer(names.type_vocab_size, kMaxSize);
  if (const char* name = "pad_token_id"; !fields.json().contains(name) || fields.has(name)) {
    const auto id = fields.integer(name, -encoder.vocab_size, encoder.vocab_size - 1, 0);
    encoder.padding_idx = static_cast<std::int32_t>(id < 0 ? id + encoder.vocab_size : id);
  }
  if (encoder.hidden_size % encoder.num_attention_heads != 0) {
    fields.fail(std::string(names.hidden_size),
                fmt::format("a multiple of {}, which is {}", names.num_attention_heads,
                            encoder.num_attention_heads));
  }
  if (encoder.head_size() % kernels::kHeadSizeUnit != 0 ||
      encoder.hidden_size > kernels::kMaxHidden) {
    fields.fail(
        std::string(names.hidden_size),
        fmt::format("a multiple of {} times {}, which is {}, up to {}", kernels::kHeadSizeUnit,
                    names.num_attention_heads, encoder.num_attention_heads, kernels::kMaxHidden));
  }
  constexpr double kBelowOne = 0.999;
  encoder.layer_norm_eps = number(names.layer_norm_eps, 1e-30, 1, 1e-12);
  encoder.hidden_dropout_prob = number(names.hidden_dropout_prob, 0, kBelowOne, 0.1);
  encoder.attention_probs_dropout_prob =
      number(names.attention_probs_dropout_prob, 0, kBelowOne, 0.1);
  out.classifier_has_hidden_dropout =
      family.default_classifier_dropout < 0 && !fields.has(std::string(names.classifier_dropout));
  encoder.classifier_dropout =
      out.classifier_has_hidden_dropout
          ? encoder.hidden_dropout_prob
          : number(names.classifier_dropout, 0, kBelowOne, family.default_classifier_dropout);
  encoder.qa_dropout = number(names.qa_dropout, 0, kBelowOne, family.default_qa_dropout);
  encoder.initializer_range = static_cast<float>(fields.number("initializer_range", 0, 10, 0.02));
  out.labels = labels_of(fields);
  encoder.num_labels = static_cast<std::int64_t>(out.labels.size());
  out.json = fields.json().dump();
  return out;
}

std::string model_config_json(const std::string& source_json,
                              const std::vector<std::string>& labels,
                              const nn::EncoderConfig& encoder,
                              const std::string& finetuning_task) {
  auto json = nlohmann::json::parse(source_json);
  const bool answers = encoder.head == nn::Head::kQuestionAnswering;
  json["model_type"] = encoder.family->model_type;
  json["architectures"] = {fmt::format("{}{}", encoder.family->class_name,
                                       answers ? kAnswersQuestions : "ForSequenceClassification")};
  for (const char* name : {"id2label", "label2id", "problem_type"}) json.erase(name);
  if (!answers) {
    const std::vector<std::string>& names = labels.empty() ? default_labels(1) : labels;
    json["id2label"] = nlohmann::json::object();
    json["label2id"] = nlohmann::json::object();
    for (std::size_t i = 0; i < names.size(); ++i) {
      json["id2label"][std::to_string(i)] = names[i];
      json["label2id"][names[i]] = i;
    }
    json["problem_type"] = nullptr;
    if (labels.size() > 1) json["problem_type"] = "single_label_classification";
    if (encoder.head == nn::Head::kRegression) json["problem_type"] = "regression";
  }
  json.erase(kFinetuningTask);
  if (!finetuning_task.empty()) json[kFinetuningTask] = finetuning_task;
  json.erase("num_labels");         // implied by id2label; 2 without it
  json["dtype"] = "float32";        // as transformers 4.56 and later write it
  json["torch_dtype"] = "float32";  // read by earlier ones
  return json.dump(2) + "\n";
}

ModelTask read_model_task(const std::filesystem::path& path) {
  const std::filesystem::path file = config_file(path);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  const nlohmann::json json = JsonFields(file, ExitCode::kModel).json();
  ModelTask task;
  const auto name = json.find(kFinetuningTask);
  if (name != json.end() && name->is_string()) task.finetuning_task = name->get<std::string>();
  const auto classes = json.find("architectures");
  task.answers_questions =
      classes != json.end() && classes->is_array() &&
      std::ranges::any_of(*classes, [](const nlohmann::json& each) {
        return each.is_string() && each.get_ref<const std::string&>().ends_with(kAnswersQuestions);
      });
  return task;
}

}  // namespace tilewright::checkpoint
