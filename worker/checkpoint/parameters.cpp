#include "worker/checkpoint/parameters.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/printable.h"
#include "common/contract/model_files.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checksums.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/sharded_weights.h"
#include "worker/checkpoint/storage.h"
#include "worker/checkpoint/torch_file.h"
#include "worker/nn/family.h"
#include "worker/runtime/parallel.h"

namespace tilewright::checkpoint {
namespace {

constexpr std::string_view kParallelPrefix = "module.";
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kLegacySuffixes = {
    {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}};
// A buffer of transformers before 4.31: the numbers 0, 1, 2, ...
constexpr std::string_view kPositionIds = "embeddings.position_ids";

// The name in a file of the base model, or nullopt for a parameter of a head.
std::optional<std::string> base_name(const std::string& hf_name) {
  for (const nn::ModelFamily* family : nn::kModelFamilies) {
    if (hf_name.starts_with(family->prefix)) return hf_name.substr(family->prefix.size());
  }
  return std::nullopt;
}

std::vector<std::string> candidates(const std::string& hf_name) {
  std::vector<std::string> names = {hf_name};
  if (const auto base = base_name(hf_name)) names.push_back(*base);
  for (std::size_t i = 0, count = names.size(); i < count; ++i) {
    names.push_back(std::string(kParallelPrefix) + names[i]);
  }
  for (const auto& [suffix, legacy] : kLegacySuffixes) {
    if (!hf_name.ends_with(suffix)) continue;
    for (std::size_t i = 0, count = names.size(); i < count; ++i) {
      names.push_back(names[i].substr(0, names[i].size() - suffix.size()) + std::string(legacy));
    }
  }
  return names;
}

// The name of the parameter in the files. Throws Failure with the expected names if it is missing.
std::string require_parameter(const WeightSource& source, const std::string& hf_name,
                              const Shape& shape) {
  if (auto name = find_parameter(source, hf_name)) return *std::move(name);
  std::string also;
  if (const auto base = base_name(hf_name)) also = fmt::format(" (nor {})", quoted_excerpt(*base));
  source.fail(fmt::format("has no tensor {}{}, expected one of shape {}", quoted_excerpt(hf_name),
                          also, to_string(shape)));
}

// The head is that of another task or of other labels.
[[noreturn]] void fail_mismatched(const WeightSource& source, const ExpectedParameter& expected) {
  const std::string name = require_parameter(source, expected.name, expected.shape);
  source.fail(name, fmt::format("found shape {}, expected {}; --ignore_mismatched_sizes "
                                "initialises it at random",
                                to_string(source.find(name)->shape), to_string(expected.shape)));
}

// Another program may have written the weights of a checkpoint again.
void check_checkpoint_digest(const WeightSource& weights, const std::filesystem::path& checkpoint) {
  try {
    const Checksums checksums = read_checksums(checkpoint);
    const auto listed = checksums.find(weights.path().filename());
    if (listed == checksums.end()) return;
    const FileDigest found = digest_of(weights.path(), ExitCode::kWeights);
    if (found == listed->second) return;
    weights.fail(
        fmt::format("is corrupt: found SHA-256 {}, expected {} ({}); if another program "
                    "wrote it, remove {}",
                    found.sha256, listed->second.sha256, kChecksumsFile, kChecksumsFile));
  } catch (const Failure& failure) {
    throw Failure(ExitCode::kWeights, failure.what());
  }
}

}  // namespace

std::int64_t TensorView::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model_directory) {
  // A symbolic link to a missing file counts as existing, so that the message names it.
  const auto exists = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(
        std::filesystem::symlink_status(model_directory / name, ignored));
  };
  for (const model_files::Weights& weights : model_files::kWeights) {
    if (!exists(weights.name)) continue;
    const std::filesystem::path path = model_directory / weights.name;
    if (weights.is_index) {
      return std::make_unique<ShardedWeights>(
          path, weights.is_safetensors ? parse_safetensors : parse_torch_file);
    }
    if (weights.is_safetensors) return std::make_unique<SafetensorsFile>(path);
    return std::make_unique<TorchFile>(path);
  }
  std::string found = "none";
  for (const char* other : {"tf_model.h5", "flax_model.msgpack", "model.ckpt.index",
                            "bert_model.ckpt.index", "adapter_model.safetensors"}) {
    if (exists(other)) found = other;
  }
  throw Failure(ExitCode::kWeights,
                fmt::format("{}: found {} of the weight files, expected {}, {}, {} or {}",
                            model_directory.string(), found, model_files::kWeights[0].name,
                            model_files::kWeights[1].name, model_files::kWeights[2].name,
                            model_files::kWeights[3].name));
}

std::unique_ptr<WeightSource> open_intact_weights(const std::filesystem::path& model_directory,
                                                  runtime::ThreadPool* pool) {
  auto weights = open_weights(model_directory);
  weights->check_digests(pool);
  if (has_readable_file(model_directory / kStateFile) &&
      has_readable_file(model_directory / kChecksumsFile)) {
    check_checkpoint_digest(*weights, model_directory);
  }
  return weights;
}

ParameterDifferences check_parameters(const WeightSource& source,
                                      std::span<const ExpectedParameter> expected,
                                      runtime::ThreadPool* pool) {
  ParameterDifferences differences;
  std::set<std::string> used;
  std::vector<std::pair<std::string, Shape>> found;
  const ExpectedParameter* mismatched = nullptr;  // the first one
  for (const ExpectedParameter& parameter : expected) {
    if (parameter.optional && !find_parameter(source, parameter.name)) {
      differences.missing.push_back(parameter.name);
      continue;
    }
    const std::string name = require_parameter(source, parameter.name, parameter.shape);
    used.insert(name);
    const Shape& shape = source.find(name)->shape;
    if (parameter.optional && shape != parameter.shape) {
      if (!parameter.ignores_shape && mismatched == nullptr) mismatched = &parameter;
      differences.missing.push_back(parameter.name);
      continue;
    }
    source.check_floats(name, parameter.shape);
    found.emplace_back(name, parameter.shape);
  }
  // Last, because --ignore_mismatched_sizes does not help if the encoder has other sizes too.
  if (mismatched != nullptr) fail_mismatched(source, *mismatched);
  runtime::for_each_index(pool, std::ssize(found), [&](std::int64_t i) {
    const auto& [name, shape] = found[static_cast<std::size_t>(i)];
    source.check_finite(name, shape);
  });
  for (const auto& [name, tensor] : source.tensors()) {
    if (!used.contains(name) && !name.ends_with(kPositionIds)) {
      differences.unexpected.push_back(name);
    }
  }
  return differences;
}

std::optional<std::string> find_parameter(const WeightSource& source, const std::string& hf_name) {
  for (std::string& name : candidates(hf_name)) {
    if (source.find(name) != nullptr) return std::move(name);
  }
  return std::nullopt;
}

void read_parameters(const WeightSource& source, std::span<const TensorView> into,
                     runtime::ThreadPool* pool) {
  struct Piece {
    const Tensor* tensor;
    std::int64_t first;
    std::span<float> out;
  };
  constexpr std::int64_t kElements = 1 << 20;
  std::vector<Piece> pieces;
  for (const TensorView& view : into) {
    const std::string name = require_parameter(source, view.name, view.shape);
    source.check_floats(name, view.shape);
    for (std::int64_t first = 0; first < view.size(); first += kElements) {
      const auto count = static_cast<std::size_t>(std::min(kElements, view.size() - first));
      pieces.push_back({source.find(name), first, {view.data + first, count}});
    }
  }
  runtime::for_each_index(pool, std::ssize(pieces), [&](std::int64_t i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    copy_floats(*piece.tensor, piece.first, piece.out);
  });
}

std::string abbreviated_list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", excerpt(names[i]));
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace tilewright::checkpoint
