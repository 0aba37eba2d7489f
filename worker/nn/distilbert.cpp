// DistilBERT (Sanh et al., 2019) as transformers' modeling_distilbert.py computes it: no token
// types, no pooler, no dropout after attention, another head for classification.
#include "worker/nn/family.h"

namespace tilewright::nn {

constinit const ModelFamily kDistilBert = {
    .name = "DistilBERT",
    .model_type = "distilbert",
    .class_name = "DistilBert",
    .prefix = "distilbert.",
    .fields = {.hidden_size = "dim",
               .num_hidden_layers = "n_layers",
               .num_attention_heads = "n_heads",
               .intermediate_size = "hidden_dim",
               .type_vocab_size = "",
               .hidden_act = "activation",
               .layer_norm_eps = "",
               .hidden_dropout_prob = "dropout",
               .attention_probs_dropout_prob = "attention_dropout",
               .classifier_dropout = "seq_classif_dropout",
               .qa_dropout = "qa_dropout"},
    .default_classifier_dropout = 0.2f,
    .default_qa_dropout = 0.1f,
    .attention_output_dropout = false,
    .head_activation = HeadActivation::kRelu,
    .tensors = {.head_dense = "pre_classifier",
                .layers = "transformer.layer.",
                .query = "attention.q_lin",
                .key = "attention.k_lin",
                .value = "attention.v_lin",
                .attention_output = "attention.out_lin",
                .attention_norm = "sa_layer_norm",
                .intermediate = "ffn.lin1",
                .output = "ffn.lin2",
                .output_norm = "output_layer_norm"},
};

}  // namespace tilewright::nn
