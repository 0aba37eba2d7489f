#include "worker/nn/flops.h"

#include "worker/nn/head_layers.h"

namespace tilewright::nn {

double example_flops(const EncoderConfig& config, std::size_t tokens) {
  const auto H = static_cast<double>(config.hidden_size);
  const auto I = static_cast<double>(config.intermediate_size);
  const auto L = static_cast<double>(config.num_hidden_layers);
  const double P = 4 * H * H + 2 * H * I;
  const auto S = static_cast<double>(tokens);
  const auto C = static_cast<double>(config.num_labels);
  const double encoder = 2 * L * P * S + 4 * L * H * S * S;
  if (head_rows(config) == Rows::kTokens) return encoder + 2 * H * C * S;
  return encoder - 2 * (P - 3 * H * H) * (S - 1) + 2 * (H * H + H * C);
}

double forward_flops(const EncoderConfig& config, const Batch& batch) {
  double flops = 0;
  for (const std::int32_t length : batch.lengths) {
    flops += example_flops(config, static_cast<std::size_t>(length));
  }
  return flops;
}

}  // namespace tilewright::nn
