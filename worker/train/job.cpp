#include "worker/train/job.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/sha256.h"
#include "common/contract/model_files.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_report.h"
#include "worker/checkpoint/model_directory.h"
#include "worker/checkpoint/writer.h"
#include "worker/kernels/numerics_version.h"
#include "worker/nn/parameters.h"
#include "worker/tasks/registry.h"
#include "worker/text/tokenizer.h"
#include "worker/text/tokenizer_files.h"

namespace tilewright::train {
namespace {

// In the fingerprints.
constexpr const char* kStartingWeights = "starting_weights";
constexpr const char* kEvaluationData = "evaluation_data";

// A directory or a file.
std::filesystem::path config_location(const Settings& settings) {
  return settings.config_name.empty() ? settings.model_name_or_path : settings.config_name;
}

checkpoint::ModelConfig read_config(const Settings& settings) {
  if (!std::filesystem::is_directory(settings.model_name_or_path)) {
    throw Failure(ExitCode::kModel,
                  fmt::format("--model_name_or_path={}: no such directory, expected one with "
                              "config.json, weights and a tokenizer",
                              settings.model_name_or_path));
  }
  return checkpoint::read_model_config(config_location(settings));
}

std::unique_ptr<const tasks::Task> make_task_of_files(
    const Settings& settings, const std::vector<std::string>& model_labels,
    std::shared_ptr<const tasks::DataTables> tables) {
  const auto [train_file, validation_file, test_file] = files_to_read(settings);
  return tasks::make_task({.name = settings.task_name,
                           .train_file = std::string(train_file.path),
                           .validation_file = std::string(validation_file.path),
                           .test_file = std::string(test_file.path),
                           .model_labels = model_labels,
                           .tables = std::move(tables)});
}

// Whether the labels are numbers determines the metric of the user's own files.
void check_metric_of_own_files(const Settings& settings, nn::Head head) {
  const std::string_view metric = settings.metric_for_best_model;
  check_metric(settings, training_report::evaluation_result(metric).value_or(metric),
               {to_string(head == nn::Head::kRegression ? TaskMetric::kMeanSquaredError
                                                        : TaskMetric::kAccuracy)});
}

// The conflicts that are known only with the task.
void check_flags_of_task(const Settings& settings, const tasks::Task& task) {
  if ((settings.do_train && task.parts(tasks::Split::kTrain) == 0) ||
      (settings.do_eval && task.parts(tasks::Split::kDev) == 0)) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--task_name={}: the task has a test split only, expected "
                              "--do_train=false and --do_eval=false",
                              settings.task_name));
  }
  if (settings.task_name.empty()) check_metric_of_own_files(settings, task.head());
  if (task.head() == nn::Head::kRegression && settings.label_smoothing_factor > 0) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--label_smoothing_factor: found {} with the regression {}, expected "
                              "0: a regression has no classes",
                              settings.label_smoothing_factor, task.name()));
  }
  if (task.head() != nn::Head::kQuestionAnswering && settings.loss_counts_padding) {
    throw Failure(
        ExitCode::kUsage,
        fmt::format("--loss_counts_padding: found with {}, expected a question answering task: "
                    "no other loss has a score for each token",
                    task.name()));
  }
}

// Sets the task, and the model with the task's labels.
void apply_config_and_task(Job& job, JobSources& sources) {
  const Settings& settings = job.settings;
  job.model = read_config(settings);
  job.task = sources.task != nullptr
                 ? std::move(sources.task)
                 : make_task_of_files(settings, job.model.labels, std::move(sources.tables));
  check_flags_of_task(settings, *job.task);
  job.model.labels = job.task->label_names();
  nn::EncoderConfig& encoder = job.model.encoder;
  encoder.head = job.task->head();
  encoder.num_labels = job.task->num_labels();
  encoder.label_smoothing = settings.label_smoothing_factor;
  encoder.gradient_checkpointing = settings.gradient_checkpointing;
}

void override_dropouts(const Settings& settings, checkpoint::ModelConfig& model) {
  const auto override_one = [](float& probability, float flag) {
    if (flag >= 0) probability = flag;
  };
  nn::EncoderConfig& encoder = model.encoder;
  override_one(encoder.hidden_dropout_prob, settings.hidden_dropout_prob);
  override_one(encoder.attention_probs_dropout_prob, settings.attention_probs_dropout_prob);
  if (model.classifier_has_hidden_dropout) {
    encoder.classifier_dropout = encoder.hidden_dropout_prob;
  }
  override_one(encoder.classifier_dropout, settings.classifier_dropout);
}

// The flag allows no smaller value, so the limit is that of the model or its tokenizer.
void check_max_seq_length(const Job& job) {
  const tasks::LeastLength least = job.task->least_length();
  if (std::cmp_greater_equal(job.settings.max_seq_length, least.tokens)) return;
  throw Failure(ExitCode::kModel,
                fmt::format("{}: the smaller of max_position_embeddings in config.json and "
                            "model_max_length in tokenizer_config.json is {}, expected at least {} "
                            "for {}",
                            tokenizer_directory(job.settings), job.settings.max_seq_length,
                            least.tokens, least.use));
}

// Checks all tensors before the output directory is touched; reading them later cannot fail.
checkpoint::ParameterDifferences check_weights(const checkpoint::WeightSource& weights,
                                               const nn::EncoderConfig& config,
                                               bool ignore_mismatched_sizes,
                                               runtime::ThreadPool* pool) {
  std::vector<checkpoint::ExpectedParameter> expected;
  for (const nn::Tensor& tensor : nn::ParameterLayout(config).tensors) {
    expected.push_back({tensor.name, tensor.shape, tensor.head, ignore_mismatched_sizes});
  }
  return checkpoint::check_parameters(weights, expected, pool);
}

// Without a training, a layer of the head that the weights lack would stay at random: the results
// would mean nothing. With --ignore_mismatched_sizes the weights may have it with another shape.
void check_head_is_trained(const Job& job) {
  if (job.settings.do_train) return;
  const std::vector<std::string>& missing = job.weight_differences.missing;
  if (missing.empty()) return;
  const bool questions = job.model.encoder.head == nn::Head::kQuestionAnswering;
  throw Failure(ExitCode::kWeights,
                fmt::format("{}: the weights lack {}{}, expected those of a trained {}",
                            job.settings.model_name_or_path, missing.front(),
                            job.settings.ignore_mismatched_sizes ? " with this shape" : "",
                            questions ? "model for question answering" : "classifier"));
}

// As save_pretrained(): the output's config.json, of another model, may name another class or none.
void name_tokenizer_class(std::map<std::string, std::string>& files,
                          const std::string& class_name) {
  std::string& text = files[model_files::kTokenizerConfig];
  nlohmann::ordered_json config =
      text.empty() ? nlohmann::ordered_json::object() : nlohmann::ordered_json::parse(text);
  nlohmann::ordered_json& member = config[text::kTokenizerClass];
  if (!member.is_null()) return;
  member = class_name.empty() ? "BertTokenizer" : class_name;
  text = config.dump(2) + "\n";
}

// Keeps the files that the output of a training needs.
text::Tokenizer load_tokenizer(Job& job) {
  const Settings& settings = job.settings;
  text::Tokenizer tokenizer = text::Tokenizer::load(tokenizer_directory(settings));
  if (settings.do_train && !settings.output_dir.empty()) {
    job.tokenizer_files = checkpoint::tokenizer_files(tokenizer_directory(settings));
    if (!settings.tokenizer_name.empty() || !settings.config_name.empty()) {
      name_tokenizer_class(job.tokenizer_files, tokenizer.class_name());
    }
  }
  return tokenizer;
}

// As in Hugging Face's scripts. Without a model_max_length these fail at the first longer text.
void limit_max_seq_length(Job& job, const text::Tokenizer& tokenizer) {
  std::int64_t& length = job.settings.max_seq_length;
  length =
      std::min({length, job.model.encoder.max_position_embeddings, tokenizer.model_max_length()});
  check_max_seq_length(job);
}

nn::Padding make_padding(const Job& job, const text::Tokenizer& tokenizer) {
  const Settings& settings = job.settings;
  if (!settings.pad_to_max_length && !settings.loss_counts_padding) return {};
  const nn::Padding padding{settings.pad_to_max_length ? settings.max_seq_length : 0,
                            tokenizer.special().pad, settings.loss_counts_padding};
  if (padding.id >= job.model.encoder.vocab_size) {
    throw Failure(
        ExitCode::kModel,
        fmt::format("--{}: the tokenizer in {} has id {} for [PAD], expected an id below the "
                    "model's vocab_size {}",
                    settings.pad_to_max_length ? "pad_to_max_length" : "loss_counts_padding",
                    settings.model_name_or_path, padding.id, job.model.encoder.vocab_size));
  }
  return padding;
}

// The shapes are checked with the weights.
nlohmann::json model_fingerprint(const nn::EncoderConfig& encoder) {
  return {{"num_attention_heads", encoder.num_attention_heads},
          {"layer_norm_eps", encoder.layer_norm_eps},
          {"hidden_dropout_prob", encoder.hidden_dropout_prob},
          {"attention_probs_dropout_prob", encoder.attention_probs_dropout_prob},
          {"classifier_dropout", encoder.classifier_dropout},
          {"qa_dropout", encoder.qa_dropout},
          {"initializer_range", encoder.initializer_range}};
}

// `limit`: of the examples; not positive: none.
tasks::ReadOptions read_options(const Settings& settings, std::int64_t limit,
                                runtime::ThreadPool* pool) {
  tasks::ReadOptions options;
  options.data_dir = settings.data_dir;
  options.pool = pool;
  options.max_seq_length = static_cast<std::size_t>(settings.max_seq_length);
  options.max_samples = limit > 0 ? static_cast<std::size_t>(limit) : 0;
  options.question_answering = {
      .doc_stride = static_cast<std::size_t>(settings.doc_stride),
      .version_2_with_negative = settings.version_2_with_negative,
      .null_score_diff_threshold = settings.null_score_diff_threshold,
      .n_best_size = static_cast<std::size_t>(settings.n_best_size),
      .max_answer_length = static_cast<std::size_t>(settings.max_answer_length)};
  return options;
}

void check_ids(const Job& job, const tasks::Dataset& data) {
  tasks::check_ids(data, job.model.encoder.vocab_size, job.model.encoder.type_vocab_size,
                   checkpoint::config_file(config_location(job.settings)).string());
}

// What determines the tokens and labels of a part.
FeatureCache::Key feature_key(const Job& job, const tasks::DataPart& part,
                              const text::Tokenizer& tokenizer, const tasks::ReadOptions& options) {
  FeatureCache::Key key;
  key.data_files = job.task->input_files(part, options.data_dir);
  if (key.data_files.empty()) return key;
  for (const char* name : model_files::kTokenizerFiles) {
    const std::filesystem::path file =
        std::filesystem::path(tokenizer_directory(job.settings)) / name;
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) key.tokenizer_files.push_back(file);
  }
  nlohmann::json settings = {
      {"task", job.task->name()},
      {"labels", job.task->label_names()},
      {text::kTokenizerClass, tokenizer.class_name()},
      {"max_seq_length", options.max_seq_length},
      {"max_samples", options.max_samples},
      {"doc_stride", options.question_answering.doc_stride},
      {"version_2_with_negative", options.question_answering.version_2_with_negative}};
  for (const auto* files : {&key.data_files, &key.tokenizer_files}) {
    for (const std::filesystem::path& file : *files) {
      settings["names"].push_back(file.filename().string());
    }
  }
  key.settings = settings.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  key.limits = {.head = job.task->head(),
                .num_labels = job.task->num_labels(),
                .max_seq_length = static_cast<std::int64_t>(options.max_seq_length)};
  return key;
}

// With what follows from their number: the schedule, and the entries of the fingerprint.
void read_train_data(Job& job, const text::Tokenizer& tokenizer, const JobSources& sources) {
  const Settings& settings = job.settings;
  const tasks::DataPart part{tasks::Split::kTrain};
  const tasks::ReadOptions options =
      read_options(settings, settings.max_train_samples, sources.pool);
  const auto read = [&] { return job.task->read(part, tokenizer, options); };
  job.train_data = sources.features == nullptr
                       ? read()
                       : sources.features->get(feature_key(job, part, tokenizer, options), read);
  check_ids(job, job.train_data);
  job.fingerprint["train_data"] = job.train_data.digest();
  const auto examples = static_cast<std::int64_t>(job.train_data.size());
  job.schedule = make_schedule(settings, examples, settings.global_batch);
  if (settings.dataloader_drop_last) {
    job.fingerprint["examples_per_epoch"] =
        examples_per_epoch(settings, examples, settings.global_batch);
  }
  if (job.schedule.steps_per_epoch == 0) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--dataloader_drop_last: found {} training examples, expected at "
                              "least one batch of all workers",
                              examples));
  }
}

// All parts of the split, with at most `limit` examples each.
std::vector<EvaluationSet> read_parts(const Job& job, const text::Tokenizer& tokenizer,
                                      tasks::Split split, std::int64_t limit,
                                      runtime::ThreadPool* pool) {
  std::vector<EvaluationSet> sets;
  for (std::size_t i = 0; i < job.task->parts(split); ++i) {
    const tasks::DataPart part{split, i};
    const std::string name = job.task->part_name(part);
    sets.push_back({part, name.empty() ? "" : "_" + name,
                    job.task->read(part, tokenizer, read_options(job.settings, limit, pool))});
    check_ids(job, sets.back().data);
  }
  return sets;
}

// The data of the evaluation and of the prediction, and their entries of the fingerprints.
void read_evaluation_data(Job& job, const text::Tokenizer& tokenizer, runtime::ThreadPool* pool) {
  const Settings& settings = job.settings;
  if (settings.do_eval) {
    job.evaluation_sets =
        read_parts(job, tokenizer, tasks::Split::kDev, settings.max_eval_samples, pool);
  }
  if (settings.do_predict) {
    job.prediction_sets =
        read_parts(job, tokenizer, tasks::Split::kTest, settings.max_predict_samples, pool);
  }
  job.evaluation_fingerprint = evaluation_fingerprint(settings);
  for (const EvaluationSet& set : job.evaluation_sets) {
    job.evaluation_fingerprint[kEvaluationData + set.suffix] = set.data.digest();
  }
  for (const EvaluationSet& set : job.prediction_sets) {
    job.evaluation_fingerprint["prediction_data" + set.suffix] = set.data.digest();
  }
  if (settings.do_train && settings.load_best_model_at_end) {
    job.fingerprint[kEvaluationData] =
        job.evaluation_fingerprint.at(kEvaluationData + job.evaluation_sets.front().suffix);
  }
}

// Equal flags, data and weights are the same job, which the next launch resumes.
std::string derive_uid(const Job& job) {
  return std::string(checkpoint::kHashedUidPrefix) +
         sha256_hex(job.fingerprint.dump()).substr(0, 16);
}

}  // namespace

void Job::set_instruction_set(runtime::Isa isa) {
  if (settings.chooses_data_type) {
    settings.bf16 = runtime::has_bf16(isa);
    if (settings.exact) fingerprint[std::string(kDataTypeSetting)] = settings.bf16;
  }
  if (settings.exact) fingerprint[kInstructionSetSetting] = runtime::name(isa);
}

void Job::adopt_output(std::string directory, std::string output_uid) {
  settings.output_dir = std::move(directory);
  uid = std::move(output_uid);
}

void open_starting_weights(Job& job, runtime::ThreadPool* pool) {
  job.weights = checkpoint::open_intact_weights(job.settings.model_name_or_path, pool);
  job.weight_differences =
      check_weights(*job.weights, job.model.encoder, job.settings.ignore_mismatched_sizes, pool);
  job.fingerprint[kStartingWeights] = job.weights->digest(pool);
}

void check_weights_unchanged(const Job& job, runtime::ThreadPool* pool) {
  job.weights->check_size();
  const std::string found = job.weights->digest(pool);
  const std::string expected = job.fingerprint.at(kStartingWeights);
  if (found == expected) return;
  job.weights->fail(
      fmt::format("has changed since this process started: found the digest {}, expected {}; the "
                  "starting weights of a job must not change",
                  found, expected));
}

Job load_job(const Settings& settings, const std::string& uid, JobSources sources) {
  const auto end_part = [&](std::string_view name) {
    if (sources.end_part) sources.end_part(name);
  };
  Job job;
  job.settings = settings;
  job.uid = uid;
  apply_config_and_task(job, sources);
  override_dropouts(job.settings, job.model);
  end_part("model configuration and task");
  const text::Tokenizer tokenizer = load_tokenizer(job);
  end_part("tokenizer");
  limit_max_seq_length(job, tokenizer);
  job.padding = make_padding(job, tokenizer);
  job.fingerprint = fingerprint(job.settings);
  job.fingerprint["model_config"] = model_fingerprint(job.model.encoder);
  const auto verify_weights = [&] {
    open_starting_weights(job, sources.pool);
    check_head_is_trained(job);
    end_part("weight verification");
  };
  // Before the labels of a head that is not trained, perhaps LABEL_0, are compared with the data's.
  if (!settings.do_train) verify_weights();
  if (settings.do_train) read_train_data(job, tokenizer, sources);
  read_evaluation_data(job, tokenizer, sources.pool);
  end_part("data reading and tokenization");
  if (settings.do_train) verify_weights();
  if (job.uid.empty()) job.uid = derive_uid(job);
  // After the UID, which does not depend on the version.
  job.fingerprint["kernels"] = kernels::kNumericsVersion;
  return job;
}

}  // namespace tilewright::train
