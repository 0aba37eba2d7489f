#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/checkpoint/model_config.h"

namespace tilewright::fuzz {

int fuzz_model_config(const std::uint8_t* data, std::size_t size) {
  using namespace checkpoint;
  const auto path = write_scratch("config.json", as_text(data, size));
  try {
    const ModelConfig config = read_model_config(path);
    // What a training writes can be read again.
    const auto written = write_scratch(
        "config.json", model_config_json(config.json, config.labels, config.encoder, "mrpc"));
    const ModelConfig again = read_model_config(written);
    TW_CHECK(again.labels == config.labels, "the labels change when they are written");
    TW_CHECK(again.encoder.hidden_size == config.encoder.hidden_size, "a size changes");
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
  return 0;
}

}  // namespace tilewright::fuzz
