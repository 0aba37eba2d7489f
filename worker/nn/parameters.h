// The parameters of a BERT classifier as one flat fp32 vector, and where each tensor lies in it.
//
// Order: the order in which backward finishes gradients (head first, embeddings last), so that a
// bucket of the exchange is a consecutive range that fills from its beginning. The vector ends with
// the word embeddings, because their gradient is kept by touched rows only:
//   values    [ head | pooler | layer L-1 ... layer 0 | embedding norm, positions, types | words
//   V*H ] gradient  [ the same                                                        | R touched
//   rows*H | loss ]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/nn/bert_config.h"
#include "worker/runtime/memory.h"

namespace tilewright::nn {

// One tensor under its Hugging Face name.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in elements of the flat vector
  std::int64_t count = 0;
  bool decays = false;  // weight decay: not on biases and layer norm
};

// A linear layer [N, K] inside the flat vector. Query, key and value stand together as one [3H, H].
struct LinearLayout {
  std::int64_t weight = 0;
  std::int64_t bias = 0;
  std::int64_t N = 0;
  std::int64_t K = 0;
};

struct NormLayout {
  std::int64_t gamma = 0;
  std::int64_t beta = 0;
};

struct EncoderLayerLayout {
  LinearLayout qkv, attention_output, intermediate, output;
  NormLayout attention_norm, output_norm;
  std::int64_t begin = 0;  // its part of the flat vector
  std::int64_t end = 0;
};

struct ParameterLayout {
  explicit ParameterLayout(const BertConfig& config);

  std::vector<Tensor> tensors;  // in the order of the flat vector
  LinearLayout classifier, pooler;
  std::vector<EncoderLayerLayout> layers;
  NormLayout embedding_norm;
  std::int64_t position_embeddings = 0;
  std::int64_t type_embeddings = 0;
  std::int64_t word_embeddings = 0;  // also the number of elements before them
  std::int64_t count = 0;            // of the whole vector

  // All linear layers, for packing and the optimizer.
  std::vector<LinearLayout> linears() const;
};

// Draws every element of the tensors named `names` from a normal distribution (sum of 12 uniform
// numbers less 6) of deviation `deviation`, biases zero; decided by seed and place alone.
void initialise_tensor(const Tensor& tensor, std::uint64_t seed, float deviation, float* values);

}  // namespace tilewright::nn
