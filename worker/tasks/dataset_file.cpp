#include "worker/tasks/dataset_file.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/sha256.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::tasks {
namespace {

using checkpoint::DType;
using checkpoint::SafetensorsFile;

constexpr const char* kDigest = "digest";
constexpr const char* kWarnings = "warnings";

template <typename Element>
constexpr DType kDType = std::is_same_v<Element, std::int64_t>   ? DType::kI64
                         : std::is_same_v<Element, std::int32_t> ? DType::kI32
                         : std::is_same_v<Element, float>        ? DType::kF32
                                                                 : DType::kU8;

// Calls visit(name, list) for each list of the data set.
template <typename Data, typename Visit>
void for_each_list(Data& data, const Visit& visit) {
  visit("ids", data.ids);
  visit("offsets", data.offsets);
  visit("first_segments", data.first_segments);
  visit("labels", data.labels);
  visit("last_labels", data.last_labels);
  visit("values", data.values);
}

template <typename Element>
std::span<const Element> list_of(const SafetensorsFile& file, const char* name) {
  const checkpoint::Tensor* tensor = file.find(name);
  if (tensor == nullptr) file.fail(name, "is missing");
  if (tensor->dtype != kDType<Element> || tensor->shape.size() != 1) {
    file.fail(
        name,
        fmt::format("is {} {}, expected {} in one dimension", checkpoint::dtype_name(tensor->dtype),
                    checkpoint::to_string(tensor->shape), checkpoint::dtype_name(kDType<Element>)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(tensor->bytes.data());
  if (address % alignof(Element) != 0) file.fail(name, "is not aligned");
  return {reinterpret_cast<const Element*>(tensor->bytes.data()),
          tensor->bytes.size() / sizeof(Element)};
}

std::string text_of(const SafetensorsFile& file, const char* name) {
  const auto bytes = list_of<std::uint8_t>(file, name);
  return {bytes.begin(), bytes.end()};
}

void check_lists(const SafetensorsFile& file, const Dataset& data, const DatasetLimits& limits) {
  const std::size_t examples = data.size();
  const bool answers = limits.head == nn::Head::kQuestionAnswering;
  const bool regression = limits.head == nn::Head::kRegression;
  if (examples == 0 || data.offsets.size() != examples + 1 || data.offsets.front() != 0 ||
      !std::cmp_equal(data.offsets.back(), data.ids.size()) ||
      data.labels.size() != (regression ? 0 : examples) ||
      data.last_labels.size() != (answers ? examples : 0) ||
      data.values.size() != (regression ? examples : 0)) {
    file.fail("has lists that do not belong together");
  }
  for (std::size_t i = 0; i < examples; ++i) {
    const std::int64_t length = data.offsets[i + 1] - data.offsets[i];
    const std::int64_t labels = answers ? length : limits.num_labels;
    const auto is_label = [&](std::int32_t label) { return label >= 0 && label < labels; };
    const bool valid = length > 0 && length <= limits.max_seq_length &&
                       data.first_segments[i] >= 0 && data.first_segments[i] <= length &&
                       (regression || is_label(data.labels[i])) &&
                       (!answers || is_label(data.last_labels[i]));
    if (!valid) file.fail(fmt::format("has an invalid example {}", i));
  }
}

bool is_on_network(const std::filesystem::path& path) {
  constexpr long kLustre = 0x0bd00bd0, kGpfs = 0x47504653;  // linux/magic.h lacks them
  constexpr std::array<long, 10> kTypes = {
      NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, AFS_SUPER_MAGIC,
      CEPH_SUPER_MAGIC, V9FS_MAGIC,      FUSE_SUPER_MAGIC, kLustre,          kGpfs};
  struct statfs found {};
  if (statfs(path.c_str(), &found) != 0) return true;
  return std::ranges::find(kTypes, static_cast<long>(found.f_type)) != kTypes.end();
}

Dataset copy_of(const Dataset& data) {
  const auto copy = [](const auto& list) { return std::vector(list.begin(), list.end()); };
  Dataset copied({.ids = copy(data.ids),
                  .offsets = copy(data.offsets),
                  .first_segments = copy(data.first_segments),
                  .labels = copy(data.labels),
                  .last_labels = copy(data.last_labels),
                  .values = copy(data.values)});
  copied.warnings = data.warnings;
  return copied;
}

}  // namespace

void write_dataset(const std::filesystem::path& path, const Dataset& data) {
  std::vector<checkpoint::NamedTensor> tensors;
  const auto add = [&](const char* name, const auto& list) {
    using Element = typename std::decay_t<decltype(list)>::value_type;
    tensors.push_back({name,
                       {.dtype = kDType<Element>,
                        .shape = {std::ssize(list)},
                        .bytes = std::as_bytes(std::span(list))}});
  };
  for_each_list(data, add);
  const std::string warnings =
      nlohmann::json(data.warnings).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string digest = sha256_hex(data.digest() + warnings);
  add(kDigest, digest);
  add(kWarnings, warnings);
  checkpoint::write_safetensors(path, std::move(tensors));
}

Dataset open_dataset(const std::filesystem::path& path, const DatasetLimits& limits) {
  const auto file = std::make_shared<const SafetensorsFile>(path, ExitCode::kData);
  Dataset data;
  for_each_list(data, [&]<typename Element>(const char* name, std::span<const Element>& list) {
    list = list_of<Element>(*file, name);
  });
  check_lists(*file, data, limits);
  const std::string text = text_of(*file, kWarnings);
  if (sha256_hex(data.digest() + text) != text_of(*file, kDigest)) {
    file->fail("does not have the digest in it");
  }
  const auto warnings = nlohmann::json::parse(text, nullptr, false);
  if (!warnings.is_array()) file->fail(kWarnings, "is not a list");
  for (const nlohmann::json& warning : warnings) {
    if (!warning.is_string()) file->fail(kWarnings, "is not a list of strings");
    data.warnings.push_back(warning.get<std::string>());
  }
  data.storage = file;
  return is_on_network(path) ? copy_of(data) : data;
}

}  // namespace tilewright::tasks
