#include <array>

#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checksums.h"

namespace tilewright::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint;

// Without a section checksums.json the checksums fit, so that the files behind them are read.
void write_files(const Files& files, const fs::path& folder) {
  Checksums checksums;
  bool has_checksums = false;
  for (const auto& [name, content] : files) {
    write_scratch(folder.filename().string() + "/" + name, content);
    has_checksums = has_checksums || name == kChecksumsFile;
  }
  if (has_checksums) return;
  for (const auto& [name, content] : files) {
    checksums[name] = digest_of(folder / name, ExitCode::kCheckpoint);
  }
  write_scratch(folder.filename().string() + "/" + kChecksumsFile, checksums_json(checksums));
}

}  // namespace

int fuzz_checkpoint(const std::uint8_t* data, std::size_t size) {
  clear_scratch();
  const fs::path folder = scratch_directory() / "checkpoint-4";
  fs::create_directory(folder);
  write_files(split_files(as_text(data, size)), folder);

  const auto guarded = [](const auto& read) {
    try {
      read();
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  };
  guarded([&] {
    const TrainerState state = read_trainer_state(folder / kStateFile);
    // What is read can be written and read again.
    const fs::path copy = write_scratch("again.json", trainer_state_json(state));
    TW_CHECK(read_trainer_state(copy).global_step == state.global_step, "a state changes");
    require_same_settings(state, {{"seed", 42}}, folder);
  });
  guarded([&] { verify_content(folder, read_checksums(folder)); });
  for (const std::string& warning : latest_valid_checkpoint(scratch_directory()).warnings) {
    check_message(warning);
  }
  guarded([&] {
    std::array<float, 2> values{};
    const std::vector<TensorView> views{{"w", {2}, values.data()}};
    load_checkpoint(folder, nullptr, {views, views, views});
  });
  return 0;
}

}  // namespace tilewright::fuzz
