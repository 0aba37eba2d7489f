#include "worker/checkpoint/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/printable.h"
#include "worker/checkpoint/block_digest.h"
#include "worker/checkpoint/safetensors_header.h"

namespace tilewright::checkpoint {

void WeightSource::add_file(const std::filesystem::path& path, ParseTensors parse) {
  auto file = std::make_unique<const MappedFile>(path, code_);
  FileTensors parsed = parse(file->content(), path, code_);
  for (auto& [name, tensor] : parsed.tensors) {
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      fail(fmt::format("tensor {} is in {} and in {}, expected it in one file",
                       quoted_excerpt(name), file_of(name).filename().string(),
                       path.filename().string()));
    }
    file_of_.emplace(name, file.get());
  }
  if (!parsed.sha256.empty()) stated_digests_[path.filename()] = std::move(parsed.sha256);
  files_[path.filename()] = std::move(file);
}

const std::filesystem::path& WeightSource::file_of(const std::string& name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? path_ : found->second->path();
}

const Tensor* WeightSource::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const Tensor& WeightSource::at(const std::string& name, const Shape& shape) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) {
    fail(fmt::format("has no tensor {}, expected one of shape {}", quoted_excerpt(name),
                     to_string(shape)));
  }
  if (tensor->shape != shape) {
    fail(name,
         fmt::format("found shape {}, expected {}", to_string(tensor->shape), to_string(shape)));
  }
  return *tensor;
}

const Tensor& WeightSource::floating_point(const std::string& name, const Shape& shape) const {
  const Tensor& tensor = at(name, shape);
  if (is_floating_point(tensor.dtype)) return tensor;
  fail(name,
       fmt::format("found dtype {}, expected F32, F16, BF16 or F64", dtype_name(tensor.dtype)));
}

void WeightSource::check_floats(const std::string& name, const Shape& shape) const {
  floating_point(name, shape);
}

void WeightSource::check_finite(const std::string& name, const Shape& shape) const {
  const Tensor& tensor = floating_point(name, shape);
  constexpr std::int64_t kBlock = 1 << 14;  // 64 KiB, in the cache
  std::vector<float> block(static_cast<std::size_t>(std::min(tensor.size(), kBlock)));
  for (std::int64_t first = 0; first < tensor.size(); first += kBlock) {
    const auto values =
        std::span(block).first(static_cast<std::size_t>(std::min(tensor.size() - first, kBlock)));
    copy_floats(tensor, first, values);
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad == values.end()) continue;
    fail(name, fmt::format("element {} is {}, expected a finite number in the range of fp32",
                           first + (bad - values.begin()),
                           std::isnan(*bad) ? "NaN" : (*bad > 0 ? "infinite" : "-infinite")));
  }
}

void WeightSource::read_floats(const std::string& name, const Shape& shape,
                               std::span<float> out) const {
  const Tensor& tensor = floating_point(name, shape);
  TW_CHECK(static_cast<std::int64_t>(out.size()) == tensor.size(),
           "{} elements of {} read into a buffer of {}", tensor.size(), name, out.size());
  copy_floats(tensor, 0, out);
}

void WeightSource::check_size() const {
  for (const auto& [name, file] : files_) file->check_size();
}

void WeightSource::check_digests(runtime::ThreadPool* pool) const {
  for (const auto& [name, stated] : stated_digests_) {
    const MappedFile* const file = files_.at(name).get();
    Tensors tensors;
    for (const auto& [tensor, its_file] : file_of_) {
      if (its_file == file) tensors.emplace(tensor, tensors_.at(tensor));
    }
    const std::string found = tensors_digest(tensors, pool);
    if (found == stated) continue;
    throw Failure(
        code_, fmt::format("{}: is corrupt: its tensors have the SHA-256 {}, expected {} "
                           "({} in its metadata)",
                           file->path().string(), found, quoted_excerpt(stated), kTensorsDigest));
  }
}

std::string WeightSource::digest(runtime::ThreadPool* pool) const {
  std::vector<NamedContent> contents;
  contents.reserve(files_.size());
  for (const auto& [name, file] : files_) contents.push_back({name, file->content()});
  return contents.size() == 1 ? block_digests(contents, pool).front()
                              : digest_of_list(contents, pool);
}

void WeightSource::fail(const std::string& what) const {
  throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
}

void WeightSource::fail(const std::string& name, const std::string& what) const {
  throw Failure(
      code_, fmt::format("{}: tensor {}: {}", file_of(name).string(), quoted_excerpt(name), what));
}

}  // namespace tilewright::checkpoint
