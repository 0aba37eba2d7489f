#include "worker/checkpoint/parameters.h"

#include <array>
#include <utility>

namespace tilewright::checkpoint {
namespace {

constexpr std::string_view kPrefix = "bert.";
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kLegacySuffixes = {
    {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}};

std::vector<std::string> candidates(const std::string& hf_name) {
  std::vector<std::string> names = {hf_name};
  if (hf_name.starts_with(kPrefix)) names.push_back(hf_name.substr(kPrefix.size()));
  for (const auto& [suffix, legacy] : kLegacySuffixes) {
    if (!hf_name.ends_with(suffix)) continue;
    for (std::size_t i = 0, count = names.size(); i < count; ++i) {
      names.push_back(names[i].substr(0, names[i].size() - suffix.size()) + std::string(legacy));
    }
  }
  return names;
}

// The name of the parameter in the file. Throws Failure with the expected names if it is missing.
std::string require_parameter(const SafetensorsFile& file, const std::string& hf_name,
                              const Shape& shape) {
  if (auto name = find_parameter(file, hf_name)) return *std::move(name);
  std::string also;
  if (hf_name.starts_with(kPrefix)) {
    also = fmt::format(" (nor {})", quote(hf_name.substr(kPrefix.size())));
  }
  file.fail(fmt::format("has no tensor {}{}, expected one of shape {}", quote(hf_name), also,
                        to_string(shape)));
}

}  // namespace

std::int64_t TensorView::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::unique_ptr<SafetensorsFile> open_weights(const std::filesystem::path& model_folder) {
  const auto path = model_folder / "model.safetensors";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    for (const char* other : {"model.safetensors.index.json", "pytorch_model.bin", "tf_model.h5"}) {
      if (std::filesystem::exists(model_folder / other, ignored)) {
        throw Failure(ExitCode::kWeights,
                      fmt::format("{}: is missing; found {}, expected the weights in one "
                                  "safetensors file",
                                  path.string(), other));
      }
    }
  }
  return std::make_unique<SafetensorsFile>(path);
}

std::optional<std::string> find_parameter(const SafetensorsFile& file, const std::string& hf_name) {
  for (std::string& name : candidates(hf_name)) {
    if (file.find(name) != nullptr) return std::move(name);
  }
  return std::nullopt;
}

void check_parameter(const SafetensorsFile& file, const std::string& hf_name, const Shape& shape) {
  file.check_floats(require_parameter(file, hf_name, shape), shape);
}

void read_parameter(const SafetensorsFile& file, const TensorView& into) {
  file.read_floats(require_parameter(file, into.name, into.shape), into.shape,
                   {into.data, static_cast<std::size_t>(into.size())});
}

}  // namespace tilewright::checkpoint
