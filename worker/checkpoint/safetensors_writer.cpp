#include "worker/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/hashed_file.h"

namespace tilewright::checkpoint {
namespace {

NamedTensor named(std::string name, DType dtype, Shape shape, const void* data) {
  std::size_t bytes = dtype_size(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {std::move(name), {dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}}};
}

std::string header_of(const std::vector<NamedTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    TW_CHECK(!header.contains(name), "tensor {} is to be written twice", name);
    auto& entry = header[name];
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.bytes.size()};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begins at a multiple of 8
  return text;
}

}  // namespace

NamedTensor float_tensor(std::string name, Shape shape, const float* data) {
  return named(std::move(name), DType::kF32, std::move(shape), data);
}
NamedTensor int32_tensor(std::string name, Shape shape, const std::int32_t* data) {
  return named(std::move(name), DType::kI32, std::move(shape), data);
}
NamedTensor int64_tensor(std::string name, Shape shape, const std::int64_t* data) {
  return named(std::move(name), DType::kI64, std::move(shape), data);
}

FileDigest write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return a.tensor.dtype != b.tensor.dtype ? a.tensor.dtype > b.tensor.dtype : a.name < b.name;
  });
  const std::string header = header_of(tensors);
  std::byte length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xff);

  HashedFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : tensors) file.write(tensor.bytes);
  return file.finish();
}

}  // namespace tilewright::checkpoint
