#include "worker/train/job.h"

#include <algorithm>
#include <filesystem>

#include "common/base/sha256.h"
#include "worker/checkpoint/parameters.h"
#include "worker/nn/parameters.h"
#include "worker/tasks/registry.h"
#include "worker/text/tokenizer.h"

namespace tilewright::train {
namespace {

std::string digest_of(const tasks::Dataset& data) {
  Sha256 sha;
  const auto add = [&](const auto& list) {
    sha.update(list.data(), list.size() * sizeof(list[0]));
  };
  add(data.ids);
  add(data.types);
  add(data.offsets);
  add(data.labels);
  return sha.hex();
}

void describe(const char* split, const tasks::Dataset& data, Logger& log) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < data.size(); ++i) longest = std::max(longest, data.length(i));
  log.info("{} data: {} examples, {} tokens ({:.1f} on average, {} at most)", split, data.size(),
           data.tokens(), static_cast<double>(data.tokens()) / static_cast<double>(data.size()),
           longest);
}

// Before anything is written: whoever reads the weights later finds them good.
void check_weights(const checkpoint::SafetensorsFile& file, const nn::BertConfig& config) {
  for (const nn::Tensor& tensor : nn::ParameterLayout(config).tensors) {
    if (may_be_missing(tensor.name) && !checkpoint::find_parameter(file, tensor.name)) continue;
    checkpoint::check_parameter(file, tensor.name, tensor.shape);
  }
}

}  // namespace

Job load_job(const Settings& settings, const std::string& uid, Logger& log) {
  Job job;
  job.settings = settings;
  job.uid = uid;
  job.task = tasks::find_task(settings.task_name);
  if (!std::filesystem::is_directory(settings.model_dir)) {
    throw Failure(ExitCode::kModel,
                  fmt::format("--model_name_or_path={}: no such folder, expected one with "
                              "config.json, model.safetensors and a tokenizer",
                              settings.model_dir.string()));
  }
  job.model = checkpoint::read_bert_config(settings.model_dir);
  nn::BertConfig& bert = job.model.bert;
  if (bert.max_position_embeddings < settings.max_seq_length) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--max_seq_length={}: the model in {} has {} positions",
                              settings.max_seq_length, settings.model_dir.string(),
                              bert.max_position_embeddings));
  }
  bert.num_labels = job.task->num_labels();
  job.model.labels = job.task->label_names();
  if (settings.hidden_dropout_prob) bert.hidden_dropout_prob = *settings.hidden_dropout_prob;
  if (settings.attention_probs_dropout_prob) {
    bert.attention_probs_dropout_prob = *settings.attention_probs_dropout_prob;
  }
  if (settings.classifier_dropout) bert.classifier_dropout = *settings.classifier_dropout;

  const text::Tokenizer tokenizer = text::Tokenizer::load(settings.model_dir);
  if (settings.pad_to_max_length) {
    job.padding = {settings.max_seq_length, tokenizer.special().pad};
    if (job.padding.id >= bert.vocab_size) {
      throw Failure(
          ExitCode::kModel,
          fmt::format("--pad_to_max_length: the tokenizer in {} has [PAD] as {}, expected "
                      "an id below the model's vocab_size {}",
                      settings.model_dir.string(), job.padding.id, bert.vocab_size));
    }
  }
  const auto read = [&](tasks::Split split, std::int64_t limit) {
    tasks::ReadOptions options;
    options.data_dir = settings.data_dir;
    options.max_seq_length = static_cast<std::size_t>(settings.max_seq_length);
    options.max_samples = limit > 0 ? static_cast<std::size_t>(limit) : 0;
    tasks::Dataset data = job.task->read(split, tokenizer, options);
    tasks::check_ids(data, bert.vocab_size);
    return data;
  };
  job.fingerprint = fingerprint(settings);
  if (settings.do_train) {
    job.train_data = read(tasks::Split::kTrain, settings.max_train_samples);
    describe("training", job.train_data, log);
    job.fingerprint["train_data"] = digest_of(job.train_data);
    job.schedule = make_schedule(
        settings.schedule, static_cast<std::int64_t>(job.train_data.size()), settings.global_batch);
  }
  if (settings.do_eval) {
    job.dev_data = read(tasks::Split::kDev, settings.max_eval_samples);
    describe("evaluation", job.dev_data, log);
  }
  const auto weights = checkpoint::open_weights(settings.model_dir);
  check_weights(*weights, bert);
  Sha256 sha;
  sha.update(weights->content().data(), weights->content().size());
  job.fingerprint["starting_weights"] = sha.hex();
  // Without a runtime that names the job, the same flags on the same data are the same job.
  if (job.uid.empty()) job.uid = "flags-" + sha256_hex(job.fingerprint.dump()).substr(0, 16);
  return job;
}

}  // namespace tilewright::train
