// A temporary data directory that a test fills with files.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/text/builders.h"
#include "worker/tasks/registry.h"

namespace tilewright::tasks {

class DataFolder {
 public:
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(directory_.path() / name, std::ios::binary) << content;
  }
  const std::filesystem::path& path() const { return directory_.path(); }
  ReadOptions options() const { return {.data_dir = path()}; }

 private:
  testing::TemporaryDirectory directory_;
};

// With the tiny vocabulary: [CLS] 2, [SEP] 3, a 8, b 16, x 19.
inline text::Tokenizer tiny_tokenizer() { return text::Tokenizer(text::tiny_spec()); }

// Reads the folder's train.tsv as `task`, expects a Failure(kData) and returns its message.
inline std::string failure_of(const std::string& task, const DataFolder& folder) {
  try {
    make_task({.name = std::string(task)})
        ->read({Split::kTrain}, tiny_tokenizer(), folder.options());
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << "read without a failure";
  return "";
}

inline std::string failure_of(const std::string& task, const std::string& content) {
  const DataFolder folder;
  folder.write("train.tsv", content);
  return failure_of(task, folder);
}

}  // namespace tilewright::tasks
