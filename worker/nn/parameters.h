// The layout of a model's parameters in one flat fp32 vector.
//
// Tensors are in the order in which backward finishes their gradients (head first, embeddings
// last), so a bucket of the all-reduce is one consecutive range. The word embeddings come last
// because their gradient holds only the R rows that occur in the batch:
//
//   values    [ head | layer L-1 ... 0 | embedding norm, positions, types | words [V, H] ]
//   gradient  [ the same                                           | [R, H] | loss ]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/nn/encoder_config.h"
#include "worker/runtime/memory.h"

namespace tilewright::nn {

// One tensor under its Hugging Face name.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in elements of the flat vector
  std::int64_t count = 0;
  bool decays = false;  // has weight decay: everything except biases and layer norm
  bool head = false;    // a pre-trained model may lack it; it is then initialised at random
};

// A linear layer [N, K] inside the flat vector. Query, key and value form one layer [3H, H].
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
  std::int64_t begin = 0;  // the layer's elements of the flat vector: [begin, end)
  std::int64_t end = 0;
};

struct ParameterLayout {
  explicit ParameterLayout(const EncoderConfig& config);

  std::vector<Tensor> tensors;  // in the order of the flat vector
  LinearLayout output;          // the head's last layer: classifier or qa_outputs
  LinearLayout head_dense;      // the layer before it; N = 0 for question answering
  std::int64_t head_end = 0;
  std::vector<EncoderLayerLayout> layers;
  NormLayout embedding_norm;
  std::int64_t position_embeddings = 0;
  std::int64_t type_embeddings = 0;  // none if config.type_vocab_size is 0
  std::int64_t word_embeddings = 0;  // offset, and so the number of elements before them
  std::int64_t count = 0;            // elements of the whole vector

  // All linear layers, for packing and the optimizer: the head's one or two (output first), then
  // four per encoder layer from the last layer to the first.
  std::vector<LinearLayout> linears() const;
};

// Draws every element from a normal distribution with this standard deviation (approximated by
// the sum of 12 uniform numbers minus 6). Biases and layer norm become zero. The result depends
// only on the seed, the tensor's name and the element's index.
void initialise_tensor(const Tensor& tensor, std::uint64_t seed, float stddev, float* values);

}  // namespace tilewright::nn
