// BERT (Devlin et al., 2019) as transformers' modeling_bert.py computes it.
#include "worker/nn/family.h"

namespace tilewright::nn {

constinit const ModelFamily kBert = {
    .name = "BERT",
    .model_type = "bert",
    .class_name = "Bert",
    .prefix = "bert.",
    .fields = {.hidden_size = "hidden_size",
               .num_hidden_layers = "num_hidden_layers",
               .num_attention_heads = "num_attention_heads",
               .intermediate_size = "intermediate_size",
               .type_vocab_size = "type_vocab_size",
               .hidden_act = "hidden_act",
               .layer_norm_eps = "layer_norm_eps",
               .hidden_dropout_prob = "hidden_dropout_prob",
               .attention_probs_dropout_prob = "attention_probs_dropout_prob",
               .classifier_dropout = "classifier_dropout",
               .qa_dropout = ""},
    .default_classifier_dropout = -1,
    .default_qa_dropout = 0,
    .attention_output_dropout = true,
    .head_activation = HeadActivation::kTanh,
    .tensors = {.head_dense = "bert.pooler.dense",
                .layers = "encoder.layer.",
                .query = "attention.self.query",
                .key = "attention.self.key",
                .value = "attention.self.value",
                .attention_output = "attention.output.dense",
                .attention_norm = "attention.output.LayerNorm",
                .intermediate = "intermediate.dense",
                .output = "output.dense",
                .output_norm = "output.LayerNorm"},
};

}  // namespace tilewright::nn
