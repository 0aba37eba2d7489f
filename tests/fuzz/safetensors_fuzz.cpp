#include <array>
#include <span>

#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/support/read_floats.h"
#include "worker/checkpoint/parameters.h"
#include "worker/checkpoint/safetensors.h"

namespace tilewright::fuzz {

int fuzz_safetensors(const std::uint8_t* data, std::size_t size) {
  using namespace checkpoint;
  const auto path = write_scratch("model.safetensors", as_text(data, size));
  try {
    const SafetensorsFile file(path);
    file.check_size();
    for (const auto& [name, tensor] : file.tensors()) {
      std::size_t elements = 1;
      for (const std::int64_t extent : tensor.shape) {
        elements *= static_cast<std::size_t>(extent);
      }
      TW_CHECK(tensor.bytes.size() == elements * dtype_size(tensor.dtype), "{} has {} bytes", name,
               tensor.bytes.size());
      try {
        const std::vector<float> values = read_floats(file, name, tensor.shape);
        TW_CHECK(values.size() == elements, "{} values", values.size());
      } catch (const Failure& failure) {
        check_message(failure.what());
      }
    }
    const ExpectedParameter expected{"bert.encoder.layer.0.output.LayerNorm.weight", {2}};
    (void)check_parameters(file, std::span(&expected, 1));
    std::array<float, 2> values{};
    const TensorView into{expected.name, expected.shape, values.data()};
    read_parameters(file, {&into, 1});
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
  return 0;
}

}  // namespace tilewright::fuzz
