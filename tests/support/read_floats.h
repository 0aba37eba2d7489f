// Reads a tensor of a weight file as fp32 into a vector.
#pragma once

#include <string>
#include <vector>

#include "worker/checkpoint/weight_source.h"

namespace tilewright::checkpoint {

inline std::vector<float> read_floats(const WeightSource& source, const std::string& name,
                                      const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(source.at(name, shape).size()));
  source.read_floats(name, shape, values);
  return values;
}

}  // namespace tilewright::checkpoint
