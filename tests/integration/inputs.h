// Valid inputs and training flags that the bad-input tests start from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace tilewright::testing {

inline std::string safetensors_length(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

// Every path below a folder with the bytes of every file, to detect changes.
inline std::map<std::string, std::string> content_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> content;
  if (!std::filesystem::exists(folder)) return content;
  content["."] = "";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string& bytes = content[entry.path().lexically_relative(folder)];
    if (entry.is_symlink()) {
      bytes = std::filesystem::read_symlink(entry.path());
    } else if (entry.is_regular_file()) {
      bytes = read_text(entry.path());
    }
  }
  return content;
}

// A folder with a valid model and valid data, which a test then changes.
class Inputs {
 public:
  Inputs() {
    std::filesystem::create_directory(model());
    for (const auto& entry : std::filesystem::directory_iterator(model_dir())) {
      if (!entry.is_regular_file()) continue;
      std::filesystem::create_symlink(entry.path(), model() / entry.path().filename());
    }
    std::filesystem::create_directory(folder() / "data");
    write("data/train.tsv", header() + "1\t1\t2\tA cat sat.\tThe cat sat.\n0\t3\t4\tOne.\tTwo.\n");
    write("data/dev.tsv", header() + "1\t5\t6\tA dog ran.\tThe dog ran.\n");
  }
  const std::filesystem::path& folder() const { return temporary_.path(); }
  std::filesystem::path model() const { return folder() / "model"; }
  std::filesystem::path output() const { return folder() / "out"; }
  static std::string header() { return "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"; }

  // Replaces a file; a symbolic link is not followed.
  void write(const std::filesystem::path& name, const std::string& text) const {
    std::filesystem::remove(folder() / name);
    std::ofstream(folder() / name, std::ios::binary) << text;
  }
  // config.json with one field changed.
  void set_config(const std::string& field, const nlohmann::json& value) const {
    auto config = nlohmann::json::parse(read_text(model_dir() / "config.json"));
    config[field] = value;
    write("model/config.json", config.dump());
  }
  // Rewrites the header of the weights; the tensor data becomes a sparse hole.
  void rewrite_weights(const std::function<void(nlohmann::json&)>& change) const {
    const std::filesystem::path real = model_dir() / "model.safetensors";
    std::uint64_t length = 0;
    const std::string first = read_text(real, 8);
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(first[i]);
    const std::uint64_t data = std::filesystem::file_size(real) - 8 - length;
    auto header = nlohmann::json::parse(read_text(real, 8 + length).substr(8));
    change(header);
    const std::string text = header.dump();
    write("model/model.safetensors", safetensors_length(text.size()) + text);
    std::filesystem::resize_file(model() / "model.safetensors", 8 + text.size() + data);
  }

 private:
  TemporaryDirectory temporary_;
};

// Trains one step without evaluation; flags in `more` override these.
inline std::vector<std::string> train_command(const std::vector<std::string>& more) {
  std::vector<std::string> command = {
      "train",           "--task_name=mrpc", "--model_name_or_path=model",
      "--data_dir=data", "--output_dir=out", "--max_steps=1",
      "--do_eval=false", "--threads=1",      "--log_level=error"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

}  // namespace tilewright::testing
