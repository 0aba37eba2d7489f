"""Tilewright's dropout masks for PyTorch's models, as in worker/kernels/dropout/dropout.h."""

import numpy
import torch

MASK = (1 << 64) - 1
BLOCK = 64  # columns that 8 counters decide
SITES = 8  # numbers of sites per layer; layer -1 has the embeddings and the head
PROBABILITIES, ATTENTION_OUTPUT, OUTPUT = 0, 1, 2
EMBEDDINGS, HEAD = 0, 1


def split_mix(seed, n):
    """The n-th number of SplitMix64(seed) (worker/runtime/split_mix.h)."""
    z = (seed + n * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def philox4x32_10(counter, key):
    """Philox4x32-10 of arrays of 32-bit numbers (Salmon et al., SC'11)."""
    low, half = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    words = [numpy.uint64(key) & low, numpy.uint64(key) >> half]
    for _ in range(10):
        p0 = numpy.uint64(0xD2511F53) * counter[0]
        p1 = numpy.uint64(0xCD9E8D57) * counter[2]
        counter = [(p1 >> half) ^ counter[1] ^ words[0], p1 & low,
                   (p0 >> half) ^ counter[3] ^ words[1], p0 & low]
        words = [(words[0] + numpy.uint64(0x9E3779B9)) & low,
                 (words[1] + numpy.uint64(0xBB67AE85)) & low]
    return counter


def factors(key, site, p, shape):
    """0 or the scale for each element. `shape`: examples, heads, rows, columns."""
    examples, heads, rows, columns = shape
    threshold = round(p * 65536)
    blocks = -(-columns // BLOCK)

    def spread(values, axis):
        index = numpy.asarray(values, numpy.uint64)
        index = index.reshape([-1 if i == axis else 1 for i in range(4)])
        return numpy.broadcast_to(index, (examples, heads, rows, blocks * 8))

    words = philox4x32_10(
        [spread(range(blocks * 8), 3), spread(range(rows), 2),
         spread([site | head << 16 for head in range(heads)], 1), spread(range(examples), 0)], key)
    words = numpy.stack(words, -1).reshape(examples, heads, rows, blocks, 8, 4)
    halves = numpy.stack([words & numpy.uint64(0xFFFF), words >> numpy.uint64(16)], -1)
    # Column 64 block + 16 word + 2 lane + half.
    kept = (halves >= threshold).transpose(0, 1, 2, 3, 5, 4, 6).reshape(examples, heads, rows, -1)
    scale = 65536 / (65536 - threshold)
    return torch.from_numpy(kept[..., :columns].astype(numpy.float32) * numpy.float32(scale))


class Step:
    """The key of the step that the modules of a model share."""

    def __init__(self, seed):
        self.seed = seed
        self.begin(0)

    def begin(self, step):
        self.key = split_mix(self.seed, step + 1)


class Dropout(torch.nn.Module):
    def __init__(self, step, layer, site, p):
        super().__init__()
        self.step, self.site, self.p = step, (layer + 1) * SITES + site, p

    def forward(self, x):
        if self.p == 0 or not self.training:
            return x
        if x.dim() == 4:  # probabilities [examples, heads, queries, keys]: a row for each key
            examples, heads, queries, keys = x.shape
            mask = factors(self.step.key, self.site, self.p, (examples, heads, keys, queries))
            return x * mask.transpose(2, 3)
        rows = x.shape[1] if x.dim() == 3 else 1
        mask = factors(self.step.key, self.site, self.p, (x.shape[0], 1, rows, x.shape[-1]))
        return x * mask.reshape(x.shape)


def replace(model, seed):
    """Gives a BERT or DistilBERT with eager attention Tilewright's dropout. Returns its Step."""
    step = Step(seed)

    def put(parent, name, layer, site):
        setattr(parent, name, Dropout(step, layer, site, getattr(parent, name).p))

    if model.config.model_type == "bert":
        put(model.bert.embeddings, "dropout", -1, EMBEDDINGS)
        for index, layer in enumerate(model.bert.encoder.layer):
            put(layer.attention.self, "dropout", index, PROBABILITIES)
            put(layer.attention.output, "dropout", index, ATTENTION_OUTPUT)
            put(layer.output, "dropout", index, OUTPUT)
    else:
        put(model.distilbert.embeddings, "dropout", -1, EMBEDDINGS)
        for index, layer in enumerate(model.distilbert.transformer.layer):
            put(layer.attention, "dropout", index, PROBABILITIES)
            put(layer.ffn, "dropout", index, OUTPUT)
    if hasattr(model, "dropout"):
        put(model, "dropout", -1, HEAD)
    return step
