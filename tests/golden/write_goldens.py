#!/usr/bin/env python3
"""Writes the golden data of worker/nn with PyTorch and transformers.

    write_goldens.py --minilm DIRECTORY --out tests/golden/data
    write_goldens.py --only heads --out tests/golden/data
    write_goldens.py --only lengths --out tests/golden/data

DIRECTORY is the Hugging Face model directory of all-MiniLM-L6-v2. The files contain inputs, loss,
gradients and the losses of ten AdamW steps. Expected values are computed in float64, one example at
a time (without padding), and cast to float32. The files also contain the errors of torch's own
float32 and bf16 autocast results, computed on the padded batch with an attention mask. All random
numbers are seeded; two runs gave the same bytes.

Tensors, with B examples, T tokens, L labels; names as in transformers; scalars have shape [1]:

  input_ids, token_type_ids int32 [T], cu_seqlens int32 [B+1]
      packed inputs; positions count from 0 in each example; id 0 never occurs
  labels int32 [B]            classes, or the first tokens of answers
  last_labels int32 [B]       the last tokens of answers
  values [B]                  the values of a regression
  padded_length int32 [1]     only in question_answering_padded: the tokens of each padded example, all of
                              which the loss counts
  logits [B, L] or [T, 2], losses [B], loss
      the loss of transformers for each example; loss is the mean
  DTYPE.logits, DTYPE.loss    the reference in bf16 and fp32
  DTYPE.grad_error.NAME       relative L2 error of the reference's gradient in that dtype

Only in the small models, heads_* and lengths_*:

  grad.NAME                   gradient of loss
  adamw.losses [10], adamw.grad_norms [10]
      loss before each of ten AdamW steps on this batch (lr 1e-3, betas 0.9 and 0.999, eps 1e-8,
      weight decay 0.01 except on biases and LayerNorm), and the gradient norm before clipping to 1
  adamw.final_index.NAME int64 [32], adamw.final_value.NAME
      weights after the ten steps at 32 random flat positions (not in heads_* and lengths_*, which have
      the tensors of the head under their own names). Not to be compared where the exact gradient is
      zero (reference_name): AdamW divides its rounding error by itself
  DTYPE.adamw.losses          the same ten losses in that dtype

Only in minilm:

  classifier.weight [2, 384], classifier.bias [2]   the head
  norm.NAME                   L2 norm of the gradient
  sample_index.NAME int64 [64 or fewer], sample_value.NAME
      the gradient at random flat positions; for embeddings only rows that occur
"""

import argparse
import json
import pathlib
import platform
import zlib

import numpy
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
from transformers import (AutoTokenizer, BertConfig, BertForQuestionAnswering, BertForSequenceClassification,
                          DistilBertConfig, DistilBertForQuestionAnswering, DistilBertForSequenceClassification)

ADAMW_STEPS = 10
ADAMW_LEARNING_RATE = 1e-3
MAX_GRAD_NORM = 1.0
FINAL_SAMPLES = 32  # sampled weights per tensor after the AdamW steps
GRAD_SAMPLES = 64  # sampled gradient elements per tensor of the real model

# Ten different lengths from 3 to 50, to test packing.
LENGTHS = [17, 3, 50, 32, 5, 41, 16, 24, 9, 33]

PAIRS = [
    ("The harbour was closed on Tuesday after high winds damaged two cranes.",
     "High winds damaged a pair of cranes, and the harbour closed on Tuesday.", 1),
    ("Shares of the bakery chain rose 4.5% to $18.20 in early trading.",
     "The bakery chain opened three new shops in the north last year.", 0),
    ("Wait.", "Stop.", 1),
    ("The council voted 7-2 to plant six hundred lime trees along the river, between the old mill "
     "and the railway bridge, before the end of the coming winter.",
     "By seven votes to two, councillors decided that six hundred limes will be planted beside the "
     "river before winter ends.", 1),
    ("She repaired the clock herself.", "The clock was sold at an auction for 1,200 euros.", 0),
    ("Researchers measured how quickly the glacier melts by lowering sensors into eleven crevasses.",
     "Sensors were lowered into eleven crevasses so that researchers could measure the melting.", 1),
    ("The train to Zürich leaves at 08:15 from platform 4.",
     "Passengers for Geneva must change at the next station; the café car is closed.", 0),
    ("Our team lost the final.", "Although they led at half time, the visitors were beaten in extra "
     "time and came second in a tournament that nobody had expected them to reach.", 0),
]


def small_config(heads, labels, eps):
    return BertConfig(
        vocab_size=120, hidden_size=128, num_hidden_layers=2, num_attention_heads=heads,
        intermediate_size=256, max_position_embeddings=64, type_vocab_size=2, num_labels=labels,
        layer_norm_eps=eps, attn_implementation="eager")


def small_model(config, seed):
    """A model in which every parameter affects the result: activations of unit scale, no zero bias,
    no layer-norm weight of 1."""
    generator = torch.Generator().manual_seed(seed)
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if "LayerNorm.weight" in name:
                value = 1 + 0.2 * noise
            elif name.endswith("bias"):
                value = 0.1 * noise
            elif "embeddings" in name:
                value = 0.5 * noise
            else:
                value = noise / parameter.shape[1] ** 0.5
            parameter.copy_(value.float())
    return model.eval()


def small_examples(config, seed):
    """Examples with ids from 1 (0 is [PAD], which gets no gradient in transformers). Types are 0, then 1."""
    generator = torch.Generator().manual_seed(seed)
    examples = []
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(1, config.vocab_size, (length,), generator=generator)
        first = int(torch.randint(1, length + 1, (1,), generator=generator))
        types = (torch.arange(length) >= first).long()
        examples.append((ids, types, i * 7 % 5 % config.num_labels))
    return examples


def losses_alone(model, examples):
    """Logits [B, labels] and losses [B], computed one example at a time without padding."""
    rows = [model(input_ids=ids[None], token_type_ids=types[None]).logits for ids, types, _ in examples]
    logits = torch.cat(rows)
    labels = torch.tensor([label for _, _, label in examples])
    return logits, torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def padded_batch(examples):
    """Ids, types and attention mask of the padded batch."""
    pad = torch.nn.utils.rnn.pad_sequence
    return (pad([ids for ids, _, _ in examples], batch_first=True),
            pad([types for _, types, _ in examples], batch_first=True),
            pad([torch.ones_like(ids) for ids, _, _ in examples], batch_first=True))


def losses_padded(model, examples):
    """Logits and losses of the padded batch with an attention mask, the usual way in transformers."""
    ids, types, mask = padded_batch(examples)
    logits = model(input_ids=ids, token_type_ids=types, attention_mask=mask).logits.float()
    labels = torch.tensor([label for _, _, label in examples])
    return logits, torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def losses_bf16(model, examples):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return losses_padded(model, examples)


def gradients(model, examples, losses_of):
    """Logits, losses and the gradient of the mean loss by parameter name."""
    model.zero_grad()
    logits, losses = losses_of(model, examples)
    losses.mean().backward()
    return logits.detach(), losses.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


def adamw_run(model, examples, losses_of):
    """Ten losses (each before its step) and gradient norms (before clipping); changes the model."""
    def is_plain(name):
        return name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name
    plain = [p for n, p in model.named_parameters() if is_plain(n)]
    decayed = [p for n, p in model.named_parameters() if not is_plain(n)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=ADAMW_LEARNING_RATE, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for _ in range(ADAMW_STEPS):
        optimizer.zero_grad()
        loss = losses_of(model, examples)[1].mean()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)))
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def reference_name(name, names):
    """The tensor whose gradient's norm the error is relative to. Adding a constant to all inputs of a softmax does
    not change it, so some exact gradients are zero: those of key biases, and with question answering, a softmax
    over tokens, those of the last two biases that are added to every token."""
    name = name.replace("self.key.bias", "self.query.bias").replace("k_lin.bias", "q_lin.bias")
    if "qa_outputs.bias" in names:
        norms = [n for n in names if n.endswith(("output.LayerNorm.bias", "output_layer_norm.bias"))]
        if name in ("qa_outputs.bias", max(n for n in norms if "attention" not in n)):
            return name.replace(".bias", ".weight")
    return name


def gradient_errors(found, exact):
    """Relative L2 errors by name."""
    errors = {}
    for name, value in exact.items():
        scale = exact[reference_name(name, exact)].norm()
        errors[name] = ((found[name].double() - value).norm() / scale)[None]
    return errors


def inputs(examples):
    lengths = torch.tensor([len(ids) for ids, _, _ in examples])
    return {
        "input_ids": torch.cat([ids for ids, _, _ in examples]).int(),
        "token_type_ids": torch.cat([types for _, types, _ in examples]).int(),
        "cu_seqlens": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        "labels": torch.tensor([label for _, _, label in examples]).int(),
    }


def forward_and_errors(make_model, examples):
    """The tensors of all golden files: loss, logits, losses and the errors of the two dtypes."""
    logits, losses, exact = gradients(make_model().double(), examples, losses_alone)
    out = {"logits": logits, "losses": losses, "loss": losses.mean()[None]}
    for dtype, losses_of in (("fp32", losses_padded), ("bf16", losses_bf16)):
        found_logits, found_losses, found = gradients(make_model(), examples, losses_of)
        out[f"{dtype}.logits"] = found_logits
        out[f"{dtype}.loss"] = found_losses.mean()[None]
        errors = gradient_errors(found, exact)
        out |= {f"{dtype}.grad_error.{name}": error for name, error in errors.items()}
        print(f"  {dtype}: loss {float(found_losses.mean()):.7f} (exact {float(losses.mean()):.7f}), logits off by "
              f"at most {float((found_logits.double() - logits).abs().max()):.2e}, gradients' relative error "
              f"median {float(torch.cat(list(errors.values())).median()):.2e}, worst {float(max(errors.values())):.2e}")
        if dtype == "fp32":
            assert max(errors.values()) < 1e-4, "float64 and plain float32 torch disagree"
            assert torch.allclose(found_logits.double(), logits, rtol=1e-4, atol=1e-5)
    return out, exact


def save(tensors, path, what):
    out = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        out[name] = (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(out, str(path), metadata={"format": "pt", "what": what, "versions": versions()})
    path.chmod(0o644)


def versions():
    return (f"python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}, "
            f"tokenizers {tokenizers.__version__}, safetensors {safetensors.__version__}, numpy {numpy.__version__}")


def write_small(directory, heads, labels, eps, seed):
    config = small_config(heads, labels, eps)
    state = small_model(config, seed).state_dict()
    examples = small_examples(config, seed + 1)

    def make_model():
        model = BertForSequenceClassification(config)
        model.load_state_dict(state)
        return model.eval()

    print(directory.name)
    out, exact = forward_and_errors(make_model, examples)
    out |= inputs(examples)
    out |= {f"grad.{name}": gradient for name, gradient in exact.items()}

    model = make_model().double()
    out["adamw.losses"], out["adamw.grad_norms"] = adamw_run(model, examples, losses_alone)
    generator = torch.Generator().manual_seed(seed + 2)
    for name, parameter in model.named_parameters():
        count = min(FINAL_SAMPLES, parameter.numel())
        index = torch.randperm(parameter.numel(), generator=generator)[:count].sort().values
        out[f"adamw.final_index.{name}"] = index
        out[f"adamw.final_value.{name}"] = parameter.detach().flatten()[index]
    for dtype, losses_of in (("fp32", losses_padded), ("bf16", losses_bf16)):
        out[f"{dtype}.adamw.losses"], _ = adamw_run(make_model(), examples, losses_of)
        off = (out[f"{dtype}.adamw.losses"] - out["adamw.losses"]).abs().max()
        print(f"  {dtype}: ten losses off by at most {float(off):.2e}")
    print("  adamw.losses", [round(float(x), 6) for x in out["adamw.losses"]])
    print("  adamw.grad_norms", [round(float(x), 4) for x in out["adamw.grad_norms"]])

    directory.mkdir(parents=True, exist_ok=True)
    fields = config.to_dict()
    fields["architectures"] = ["BertForSequenceClassification"]
    fields["position_embedding_type"] = "absolute"
    (directory / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n")
    safetensors.torch.save_file(state, str(directory / "model.safetensors"), metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    save(out, directory / "expected.safetensors", f"BertForSequenceClassification, heads {heads}, labels {labels}")


# (transformers' configuration, class by head) of each family.
FAMILIES = {
    "bert": (BertConfig, {"classification": BertForSequenceClassification,
                          "regression": BertForSequenceClassification,
                          "question_answering": BertForQuestionAnswering}),
    "distilbert": (DistilBertConfig, {"classification": DistilBertForSequenceClassification,
                                      "regression": DistilBertForSequenceClassification,
                                      "question_answering": DistilBertForQuestionAnswering}),
}
# Eight lengths with one token, whose answer is certain, and the longest possible one.
HEAD_LENGTHS = [17, 3, 24, 9, 1, 20, 16, 5]
# Of lengths_*: one token, as many as BERT has positions, and those beside multiples of 16, 32, 64 and 128.
LONG_LENGTHS = [512, 1, 129, 16, 33, 384, 2, 65, 257, 15, 511, 64]


def heads_config(family, head, lengths):
    sizes = {
        "bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48},
        "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    }[family]
    labels = {"classification": 3, "regression": 1, "question_answering": 2}[head]
    problem = {"regression": {"problem_type": "regression"}}.get(head, {})
    return FAMILIES[family][0](vocab_size=40, max_position_embeddings=max(lengths), num_labels=labels,
                               attn_implementation="eager", **sizes, **problem)


def heads_model(family, head, seed, lengths):
    """As small_model(). A tensor's values depend only on its name, so the encoders of all heads are equal."""
    model = FAMILIES[family][1][head](heads_config(family, head, lengths))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if "LayerNorm.weight" in name or "layer_norm.weight" in name:
                value = 1 + 0.2 * noise
            elif name.endswith("bias"):
                value = 0.1 * noise
            elif "embeddings" in name:
                value = 0.5 * noise
            else:
                value = noise / parameter.shape[1] ** 0.5
            parameter.copy_(value.float())
    return model.eval()


def heads_examples(head, seed, lengths):
    """(ids, types, target): a class, a number, or the first and the last token of an answer."""
    generator = torch.Generator().manual_seed(seed)
    examples = []
    for i, length in enumerate(lengths):
        ids = torch.randint(1, 40, (length,), generator=generator)
        types = (torch.arange(length) >= length // 2).long()
        first, last = sorted(torch.randint(0, length, (2,), generator=generator).tolist())
        value = float(torch.randn((1,), generator=generator))
        examples.append((ids, types, {"classification": i % 3, "regression": value,
                                      "question_answering": (first, last)}[head]))
    return examples


def head_arguments(family, head, ids, types, targets):
    """The arguments of transformers' forward()."""
    arguments = {"input_ids": ids}
    if family == "bert":
        arguments["token_type_ids"] = types
    if head == "question_answering":
        arguments["start_positions"] = torch.tensor([first for first, _ in targets])
        arguments["end_positions"] = torch.tensor([last for _, last in targets])
    else:
        arguments["labels"] = torch.tensor(targets)
    return arguments


def heads_losses_alone(family, head):
    """Packed logits and losses, computed by transformers one example at a time without padding."""
    def losses_of(model, examples):
        logits, losses = [], []
        for ids, types, target in examples:
            arguments = head_arguments(family, head, ids[None], types[None], [target])
            if head == "regression":
                arguments["labels"] = arguments["labels"].to(next(model.parameters()).dtype)
            out = model(**arguments)
            losses.append(out.loss)
            logits.append(torch.stack([out.start_logits[0], out.end_logits[0]], dim=1)
                          if head == "question_answering" else out.logits)
        return torch.cat(logits), torch.stack(losses)
    return losses_of


def heads_losses_padded(family, head):
    """The same of the padded batch with an attention mask. transformers' softmax over the tokens of a question
    includes padding; here it is left out, because Tilewright has none."""
    def losses_of(model, examples):
        ids, types, mask = padded_batch(examples)
        targets = [target for _, _, target in examples]
        arguments = head_arguments(family, head, ids, types, targets)
        out = model(attention_mask=mask, **arguments)
        if head == "classification":
            return out.logits.float(), torch.nn.functional.cross_entropy(
                out.logits.float(), arguments["labels"], reduction="none")
        if head == "regression":
            return out.logits.float(), (out.logits.float().squeeze(-1) - arguments["labels"]) ** 2
        hidden = (mask == 0)
        losses = [torch.nn.functional.cross_entropy(
            logits.float().masked_fill(hidden, float("-inf")), arguments[name], reduction="none")
            for logits, name in ((out.start_logits, "start_positions"), (out.end_logits, "end_positions"))]
        logits = torch.stack([out.start_logits, out.end_logits], dim=2)[mask == 1]
        return logits.float(), (losses[0] + losses[1]) / 2
    return losses_of


def losses_with_padding(family):
    """Packed logits and losses of question answering as transformers computes the loss of the padded batch."""
    def losses_of(model, examples):
        ids, types, mask = padded_batch(examples)
        arguments = head_arguments(family, "question_answering", ids, types, [target for _, _, target in examples])
        out = model(attention_mask=mask, **arguments)
        losses = [torch.nn.functional.cross_entropy(logits.to(out.loss.dtype), arguments[name], reduction="none")
                  for logits, name in ((out.start_logits, "start_positions"), (out.end_logits, "end_positions"))]
        losses = (losses[0] + losses[1]) / 2
        assert torch.allclose(losses.mean(), out.loss), "transformers has another loss"
        return torch.stack([out.start_logits, out.end_logits], dim=2)[mask == 1], losses
    return losses_of


def in_bf16(losses_in_fp32):
    def losses_of(model, examples):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return losses_in_fp32(model, examples)
    return losses_of


def heads_inputs(head, examples):
    targets = [target for _, _, target in examples]
    out = inputs([(ids, types, 0) for ids, types, _ in examples])
    if head == "classification":
        out["labels"] = torch.tensor(targets).int()
    elif head == "regression":
        out["values"] = torch.tensor(targets)
    else:
        out["labels"] = torch.tensor([first for first, _ in targets]).int()
        out["last_labels"] = torch.tensor([last for _, last in targets]).int()
    return out


def write_heads(directory, family, heads, lengths, seed):
    """The encoder in model.safetensors, and for each head a file with its tensors and the expected values. The
    loss of the head "question_answering_padded" counts the padding."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in heads:
        head = name.removesuffix("_padded")
        print(directory.name, name)
        state = heads_model(family, head, seed, lengths).state_dict()
        examples = heads_examples(head, seed + 1, lengths)

        def make_model():
            model = FAMILIES[family][1][head](heads_config(family, head, lengths))
            model.load_state_dict(state)
            return model.eval()

        if name == head:
            reference, padded = heads_losses_alone(family, head), heads_losses_padded(family, head)
        else:
            reference = padded = losses_with_padding(family)
        losses = {"fp32": padded, "bf16": in_bf16(padded)}
        logits, exact_losses, exact = gradients(make_model().double(), examples, reference)
        out = {"logits": logits, "losses": exact_losses, "loss": exact_losses.mean()[None]}
        model = make_model().double()
        out["adamw.losses"], out["adamw.grad_norms"] = adamw_run(model, examples, reference)
        for dtype, losses_of in losses.items():
            found_logits, found_losses, found = gradients(make_model(), examples, losses_of)
            out[f"{dtype}.loss"] = found_losses.mean()[None]
            errors = gradient_errors(found, exact)
            out |= {f"{dtype}.grad_error.{name}": error for name, error in errors.items()}
            out[f"{dtype}.adamw.losses"], _ = adamw_run(make_model(), examples, losses_of)
            if dtype == "fp32":
                assert torch.allclose(found_logits.double(), logits, rtol=1e-4, atol=1e-5)
                assert max(errors.values()) < 1e-4, "float64 and plain float32 torch disagree"
            print(f"  {dtype}: loss {float(found_losses.mean()):.7f} (exact {float(exact_losses.mean()):.7f}), "
                  f"gradients' relative error median {float(torch.cat(list(errors.values())).median()):.2e}, "
                  f"worst {float(max(errors.values())):.2e}")
        out |= heads_inputs(head, examples)
        if name != head:
            out["padded_length"] = torch.tensor([max(lengths)]).int()
        out |= {f"grad.{name}": gradient for name, gradient in exact.items()}
        encoder = {name: value for name, value in state.items() if name.startswith(family + ".") and "pooler" not in name}
        out |= {name: value for name, value in state.items() if name not in encoder}
        save(out, directory / f"{name}.safetensors", FAMILIES[family][1][head].__name__)
    safetensors.torch.save_file(encoder, str(directory / "model.safetensors"), metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    fields = heads_config(family, "classification", lengths).to_dict()
    (directory / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n")


def occurring_rows(name, shape, examples):
    """The rows of an embedding that have a gradient, or all rows of any other tensor."""
    if "word_embeddings" in name:
        return torch.cat([ids for ids, _, _ in examples]).unique()
    if "position_embeddings" in name:
        return torch.arange(max(len(ids) for ids, _, _ in examples))
    return torch.arange(shape[0])


def write_minilm(directory, minilm, seed):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    examples = []
    for first, second, label in PAIRS:
        encoded = tokenizer(first, second)
        examples.append((torch.tensor(encoded["input_ids"]), torch.tensor(encoded["token_type_ids"]), label))
    config = BertConfig.from_pretrained(minilm, num_labels=2, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    head = 0.1 * torch.randn((2, config.hidden_size), generator=generator)
    bias = 0.1 * torch.randn((2,), generator=generator)

    def make_model():
        model = BertForSequenceClassification.from_pretrained(minilm, config=config, dtype=torch.float32)
        with torch.no_grad():
            model.classifier.weight.copy_(head)
            model.classifier.bias.copy_(bias)
        return model.eval()

    print(directory.name, "lengths", [len(ids) for ids, _, _ in examples])
    out, exact = forward_and_errors(make_model, examples)
    out |= inputs(examples) | {"classifier.weight": head, "classifier.bias": bias}
    for name, gradient in exact.items():
        rows = occurring_rows(name, gradient.shape, examples)
        width = gradient[0].numel()
        count = min(GRAD_SAMPLES, rows.numel() * width)
        pick = torch.randperm(rows.numel() * width, generator=generator)[:count]
        index = (rows[pick // width] * width + pick % width).sort().values
        out[f"norm.{name}"] = gradient.norm()[None]
        out[f"sample_index.{name}"] = index
        out[f"sample_value.{name}"] = gradient.flatten()[index]
    save(out, directory / "expected.safetensors", "all-MiniLM-L6-v2 with a random classifier of two labels")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", help="the model directory of all-MiniLM-L6-v2")
    parser.add_argument("--only", choices=["small", "heads", "lengths", "minilm"], help="write these files only")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the directory for small_d32, heads_bert, minilm, ...")
    arguments = parser.parse_args()
    if arguments.only in (None, "minilm") and not arguments.minilm:
        parser.error("--minilm is required")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    print(versions())
    if arguments.only in (None, "small"):
        write_small(arguments.out / "small_d32", heads=4, labels=2, eps=1e-12, seed=32)
        write_small(arguments.out / "small_d64", heads=2, labels=3, eps=1e-5, seed=64)
    if arguments.only in (None, "heads"):
        # small_d32 and small_d64 have BERT's classification.
        write_heads(arguments.out / "heads_bert", "bert", ["regression", "question_answering", "question_answering_padded"],
                    HEAD_LENGTHS, seed=128)
        write_heads(arguments.out / "heads_distilbert", "distilbert",
                    [*FAMILIES["distilbert"][1], "question_answering_padded"], HEAD_LENGTHS, seed=256)
    if arguments.only in (None, "lengths"):
        write_heads(arguments.out / "lengths_bert", "bert", ["regression", "question_answering"], LONG_LENGTHS, seed=512)
    if arguments.only in (None, "minilm"):
        write_minilm(arguments.out / "minilm", arguments.minilm, seed=6)


if __name__ == "__main__":
    main()
