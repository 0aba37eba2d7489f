// Reads tensors from a safetensors file. The file is memory-mapped, its header is validated before
// any tensor is used, and data is copied only on request.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/base/file_descriptor.h"
#include "worker/checkpoint/safetensors_header.h"

namespace tilewright::checkpoint {

// Another process that truncates the file while it is mapped causes SIGBUS on access; see
// check_size().
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path, ExitCode code = ExitCode::kWeights);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const Tensors& tensors() const { return tensors_; }
  std::span<const std::byte> content() const { return content_; }
  // nullptr if the file has no tensor of this name.
  const Tensor* find(const std::string& name) const;
  // The tensor of this name and shape. Throws Failure if there is none.
  const Tensor& at(const std::string& name, const Shape& shape) const;

  // Throws Failure unless the tensor exists and read_floats() can convert its dtype.
  void check_floats(const std::string& name, const Shape& shape) const;
  // Converts F32, F16 or BF16 to fp32. Throws Failure for another dtype or shape.
  void read_floats(const std::string& name, const Shape& shape, std::span<float> out) const;
  std::vector<float> read_floats(const std::string& name, const Shape& shape) const;

  // A Failure if the file has been truncated since it was mapped.
  void check_size() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path path_;
  ExitCode code_;
  FileDescriptor file_;
  std::span<const std::byte> content_{};
  Tensors tensors_;
};

}  // namespace tilewright::checkpoint
