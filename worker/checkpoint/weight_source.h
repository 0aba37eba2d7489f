// The tensors of one or several weight files. The files are memory-mapped and validated when they
// are opened; data is copied only on request.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "worker/checkpoint/tensor.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::checkpoint {

// Reads the tensors of one file from its content; the result contains views into it. Throws Failure
// with `code`; the message names `path`.
using ParseTensors = FileTensors (*)(std::span<const std::byte> content,
                                     const std::filesystem::path& path, ExitCode code);

// The formats are the derived classes SafetensorsFile, TorchFile and ShardedWeights.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // The file, or the index of several.
  const std::filesystem::path& path() const { return path_; }
  const Tensors& tensors() const { return tensors_; }
  // nullptr if no file has a tensor of this name.
  const Tensor* find(const std::string& name) const;
  // The tensor of this name and shape. Throws Failure if there is none.
  const Tensor& at(const std::string& name, const Shape& shape) const;

  // Throws Failure unless the tensor exists and read_floats() can convert its dtype.
  void check_floats(const std::string& name, const Shape& shape) const;
  // Throws Failure if an element is NaN, infinite or outside the range of fp32. Reads all data.
  void check_finite(const std::string& name, const Shape& shape) const;
  // Converts F32, F16, BF16 or F64 to fp32. Throws Failure for another dtype or shape.
  void read_floats(const std::string& name, const Shape& shape, std::span<float> out) const;

  // A Failure if a file has been truncated since it was mapped.
  void check_size() const;
  // A Failure if the tensors of a file do not have the digest that the file states. Reads all data
  // of the files that state one.
  void check_digests(runtime::ThreadPool* pool = nullptr) const;
  // block_digests() of a single file; of several, digest_of_list() with the files' names without
  // directory, in the order of the names.
  std::string digest(runtime::ThreadPool* pool = nullptr) const;

  // Throws Failure; the message begins with the path.
  [[noreturn]] void fail(const std::string& what) const;
  // The same about the tensor of this name: the message begins with its file and the name.
  [[noreturn]] void fail(const std::string& name, const std::string& what) const;

 protected:
  WeightSource(std::filesystem::path path, ExitCode code) : path_(std::move(path)), code_(code) {}
  // Maps the file and adds its tensors. Throws Failure if one exists already.
  void add_file(const std::filesystem::path& path, ParseTensors parse);
  // The path of the file that has this tensor.
  const std::filesystem::path& file_of(const std::string& name) const;

 private:
  const Tensor& floating_point(const std::string& name, const Shape& shape) const;

  std::filesystem::path path_;
  ExitCode code_;
  std::map<std::string, std::unique_ptr<const MappedFile>> files_;  // by name without directory
  std::map<std::string, std::string> stated_digests_;               // by the same name
  Tensors tensors_;
  std::map<std::string, const MappedFile*> file_of_;  // by the name of the tensor
};

}  // namespace tilewright::checkpoint
