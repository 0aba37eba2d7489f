// Families of encoder models. All use the same layers; a family is a description of what differs:
// names of tensors and of fields in config.json, and a few choices. One file per family.
#pragma once

#include <array>
#include <string_view>

namespace tilewright::nn {

enum class HeadActivation { kTanh, kRelu };

// Fields of config.json. An empty name: the family does not have the field.
struct ConfigFields {
  std::string_view hidden_size, num_hidden_layers, num_attention_heads, intermediate_size;
  std::string_view type_vocab_size;  // empty: no embeddings of token types
  std::string_view hidden_act;
  std::string_view layer_norm_eps;  // empty: 1e-12
  std::string_view hidden_dropout_prob, attention_probs_dropout_prob;
  std::string_view classifier_dropout, qa_dropout;  // before the last layer of a head; empty: none
};

// Tensors without ".weight" and ".bias". Those of a layer follow PREFIX + layers + NUMBER + ".",
// those of the embeddings PREFIX + "embeddings.".
struct TensorNames {
  std::string_view head_dense;  // the [H, H] layer of classification and regression, whole name
  std::string_view layers;
  std::string_view query, key, value, attention_output, attention_norm;
  std::string_view intermediate, output, output_norm;
};

struct ModelFamily {
  std::string_view name;        // for the log
  std::string_view model_type;  // in config.json
  std::string_view class_name;  // transformers' class is CLASS_NAME + "ForQuestionAnswering", ...
  std::string_view prefix;      // of the encoder's tensors, with the dot
  ConfigFields fields;
  // Used where config.json has no such field; negative: the hidden dropout.
  float default_classifier_dropout = -1;
  float default_qa_dropout = 0;
  // Whether dropout applies to the output of attention, before the residual connection.
  bool attention_output_dropout = true;
  HeadActivation head_activation = HeadActivation::kTanh;  // after head_dense
  TensorNames tensors;
};

extern const ModelFamily kBert;        // bert.cpp
extern const ModelFamily kDistilBert;  // distilbert.cpp

inline constexpr std::array<const ModelFamily*, 2> kModelFamilies = {&kBert, &kDistilBert};

}  // namespace tilewright::nn
