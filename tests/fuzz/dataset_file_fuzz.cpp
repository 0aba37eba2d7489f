#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/tasks/dataset_file.h"

namespace tilewright::fuzz {

int fuzz_dataset_file(const std::uint8_t* data, std::size_t size) {
  using namespace tasks;
  const auto path = write_scratch("data.safetensors", as_text(data, size));
  for (const nn::Head head :
       {nn::Head::kClassification, nn::Head::kRegression, nn::Head::kQuestionAnswering}) {
    try {
      const Dataset found = open_dataset(path, {.head = head, .num_labels = 2});
      std::size_t tokens = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        tokens += found.ids_of(i).size();
        TW_CHECK(found.first_segment_of(i) <= found.length(i), "a segment beyond the end");
        const nn::Target target = found.target_of(i);
        if (head == nn::Head::kClassification) TW_CHECK(target.label < 2, "{}", target.label);
      }
      TW_CHECK(tokens == found.tokens(), "{} of {} tokens", tokens, found.tokens());
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  }
  return 0;
}

}  // namespace tilewright::fuzz
