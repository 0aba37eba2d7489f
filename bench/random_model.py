"""A BERT-base for question answering with random weights, for benchmarks that do not depend on them."""

import array
import json
import random
import shutil
import struct

CONFIG = {
    "architectures": ["BertForQuestionAnswering"], "model_type": "bert", "vocab_size": 30522,
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "pad_token_id": 0,
}


def shapes():
    h, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]

    def linear(name, rows, columns):
        return {name + ".weight": (rows, columns), name + ".bias": (rows,)}

    def norm(name):
        return {name + ".weight": (h,), name + ".bias": (h,)}

    found = {"bert.embeddings.word_embeddings.weight": (CONFIG["vocab_size"], h),
             "bert.embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], h),
             "bert.embeddings.token_type_embeddings.weight": (2, h),
             **norm("bert.embeddings.LayerNorm")}
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            found |= linear(f"{layer}attention.self.{name}", h, h)
        found |= linear(layer + "attention.output.dense", h, h)
        found |= norm(layer + "attention.output.LayerNorm")
        found |= linear(layer + "intermediate.dense", inner, h)
        found |= linear(layer + "output.dense", h, inner)
        found |= norm(layer + "output.LayerNorm")
    return found | linear("qa_outputs", 2, h)


def write_model(folder, vocabulary):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shutil.copy(vocabulary, folder / "vocab.txt")
    rng = random.Random(1)
    noise = array.array("f", (rng.gauss(0, CONFIG["initializer_range"]) for _ in range(1 << 18)))
    header, at = {}, 0
    for name, shape in shapes().items():
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            count = (entry["data_offsets"][1] - entry["data_offsets"][0]) // 4
            if "LayerNorm" in name:
                file.write(array.array("f", [float(name.endswith("weight"))] * count).tobytes())
                continue
            while count > 0:
                file.write(noise[:count].tobytes())
                count -= len(noise)
