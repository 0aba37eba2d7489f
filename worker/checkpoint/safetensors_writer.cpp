#include "worker/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/hashed_file.h"

namespace tilewright::checkpoint {
namespace {

std::string header_of(const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    TW_CHECK(!header.contains(name), "tensor {} is passed twice", name);
    auto& entry = header[name];
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.bytes.size()};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // align the data to 8 bytes
  return text;
}

}  // namespace

NamedTensor float_tensor(std::string name, Shape shape, const float* data) {
  std::size_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {std::move(name),
          {DType::kF32, std::move(shape), {reinterpret_cast<const std::byte*>(data), bytes}}};
}

FileDigest write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return a.tensor.dtype != b.tensor.dtype ? a.tensor.dtype > b.tensor.dtype : a.name < b.name;
  });
  const std::string header = header_of(tensors, metadata);
  std::byte length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xff);

  HashedFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : tensors) file.write(tensor.bytes);
  return file.finish();
}

}  // namespace tilewright::checkpoint
