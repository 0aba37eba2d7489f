#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/support/read_floats.h"
#include "worker/checkpoint/torch_file.h"

namespace tilewright::fuzz {

int fuzz_torch_file(const std::uint8_t* data, std::size_t size) {
  const auto path = write_scratch("pytorch_model.bin", as_text(data, size));
  try {
    const checkpoint::TorchFile file(path);
    for (const auto& [name, tensor] : file.tensors()) {
      try {
        std::size_t elements = 1;
        for (const std::int64_t extent : tensor.shape) {
          elements *= static_cast<std::size_t>(extent);
        }
        // A stride of 0 lets a few bytes stand for a large tensor.
        if (elements > (std::size_t{1} << 20)) continue;
        const std::vector<float> values = read_floats(file, name, tensor.shape);
        TW_CHECK(values.size() == elements, "{} values of {}", values.size(), elements);
      } catch (const Failure& failure) {
        check_message(failure.what());
      }
    }
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
  return 0;
}

}  // namespace tilewright::fuzz
