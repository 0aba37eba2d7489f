#!/usr/bin/env python3
"""Compares logits, loss and every gradient of each model and head with PyTorch, on each instruction set, and loads
the folders that Tilewright writes in transformers, with their tokenizers.

    bench/parity/gradients.py                  # small models
    bench/parity/gradients.py --models bert-base bert-large distilbert --json FILE

Models have random weights and are saved by transformers. The reference is float64, one example at a time. A gradient
may have three times the error of PyTorch in the same dtype (fp32, or bf16 autocast), or the rounding error times the
root of the number of roundings, as in tests/golden/nn; PyTorch is held to the same instruction set. Logits in fp32 may
differ by 1e-5. Needs torch, transformers and build/release/bin/tilewright-parity-gradients.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from transformers import (AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoTokenizer,
                          BertTokenizerFast)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/golden"), str(ROOT / "bench")]
import support  # noqa: E402
import write_goldens as goldens  # noqa: E402

HEADS = ["classification", "regression", "question_answering"]
# (family, sizes, lengths of the examples)
LENGTHS = [17, 3, 24, 9, 1, 20, 16, 5]
TRUE_LENGTHS = [128, 37, 5, 64]
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
MODELS = {
    "bert-small": ("bert", {"vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
                            "intermediate_size": 160, "max_position_embeddings": 32}, LENGTHS),
    "distilbert-small": ("distilbert", {"vocab_size": 200, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 160,
                                        "max_position_embeddings": 32}, LENGTHS),
    # Heads of 26.
    "tinybert": ("bert", {"hidden_size": 312, "num_hidden_layers": 4, "num_attention_heads": 12,
                          "intermediate_size": 1200}, TRUE_LENGTHS),
    "bert-base": ("bert", {}, TRUE_LENGTHS),
    "bert-large": ("bert", BERT_LARGE, TRUE_LENGTHS),
    "distilbert": ("distilbert", {}, TRUE_LENGTHS),
}
SEED = 11  # of the weights; the examples have the next one
SLACK, CANCELLATION = 3, 4  # as in tests/golden/nn/nn_golden_test.cpp
ROUNDING = {"fp32": 2.0 ** -24, "bf16": 2.0 ** -9}
LOGIT_LIMIT = 1e-5  # in fp32; the largest difference in bench/results is 3.4e-6
VOCABULARY = ROOT / "tests/golden/train/vocab.txt"  # has fewer tokens than every model here
SENTENCES = [("The cat sat on the mat.", "A very old dog, not running!"), ("zebra \u732b na\u00efve", ""),
             ("", "red home")]


def make_model(family, head, sizes, seed):
    config_class, classes = goldens.FAMILIES[family]
    labels = {"classification": 3, "regression": 1, "question_answering": 2}[head]
    torch.manual_seed(seed)
    model = classes[head](config_class(num_labels=labels, attn_implementation="eager", **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "pre_classifier.bias":
                # A rounding error that changes the sign of a ReLU's input changes the gradient by as much as the
                # unit contributes. Inputs far from zero leave the arithmetic to compare.
                parameter.copy_(3 * (-1) ** torch.arange(len(parameter)))
            elif name.endswith("bias"):
                parameter.normal_(0, 0.02)
            elif "LayerNorm" in name or "layer_norm" in name:
                parameter.normal_(1, 0.1)
    return model.eval()


def make_examples(head, lengths, vocab_size, seed):
    generator = torch.Generator().manual_seed(seed)
    examples = []
    for i, length in enumerate(lengths):
        ids = torch.randint(1, vocab_size, (length,), generator=generator)
        types = (torch.arange(length) >= length // 2).long()
        first, last = sorted(torch.randint(0, length, (2,), generator=generator).tolist())
        examples.append((ids, types, {"classification": i % 3, "regression": 0.5 * i - 1,
                                      "question_answering": (first, last)}[head]))
    return examples


def run_tilewright(program, model, head, batch, out, dtype, isa, steps, learning_rate):
    command = [program, "--model", model, "--head", head, "--batch", batch, "--out", out, "--steps", str(steps),
               "--learning_rate", str(learning_rate)]
    environment = dict(os.environ) | ({"TILEWRIGHT_ISA": isa} if isa else {})
    subprocess.run([str(word) for word in command + (["--fp32"] if dtype == "fp32" else [])], check=True,
                   env=environment)
    return safetensors.torch.load_file(str(out / "result.safetensors"))


def check_folder(folder, family, head, source, source_folder, examples, logits):
    """Loads the written folder in transformers; returns the largest difference from Tilewright's logits."""
    auto = AutoModelForQuestionAnswering if head == "question_answering" else AutoModelForSequenceClassification
    loaded, info = auto.from_pretrained(str(folder), output_loading_info=True, attn_implementation="eager")
    differences = {key: value for key, value in info.items() if value}
    assert not differences, f"{folder}: {differences}"
    assert type(loaded) is type(source), type(loaded)
    assert loaded.config.num_labels == source.config.num_labels
    found, expected = (AutoTokenizer.from_pretrained(str(path))(SENTENCES)["input_ids"]
                       for path in (folder, source_folder))
    assert found == expected, f"{folder}: {found}"
    if head == "regression":
        assert loaded.config.problem_type == "regression", loaded.config.problem_type
    for name, value in source.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), f"{folder}: {name} has changed"
    with torch.no_grad():
        found, _ = goldens.heads_losses_alone(family, head)(loaded.eval(), examples)
    return float((found - logits).abs().max())


def compare(found, exact, errors, rows, layers, dtype):
    """Errors of all gradients as parts of what is allowed: the worst one, and its name."""
    worst = (0.0, "")
    for name, value in exact.items():
        if name.endswith("word_embeddings.weight"):
            value = value[rows]
        reference = goldens.reference_name(name, exact)
        scale = float(exact[reference].norm())
        error = float((found["grad." + name].double() - value).norm()) / scale
        allowed = max(ROUNDING[dtype] * (20 * layers) ** 0.5, SLACK * float(errors[name]))
        if reference != name:
            allowed *= CANCELLATION
        ratio = error / allowed
        worst = max(worst, (math.inf if math.isnan(ratio) else ratio, name))
    return worst


def beyond_limits(row):
    """A sentence for each figure of the row that differs from PyTorch's by more than is allowed. NaN does."""
    where = " ".join(str(row[name]) for name in ("model", "head", "dtype", "isa"))
    sentences = []
    if not row["worst_error_of_allowed"] <= 1:
        sentences.append(f"{where}: the gradient of {row['worst_tensor']} has "
                         f"{row['worst_error_of_allowed']:.3g} times the error that is allowed")
    for name in ("largest_logit_difference", "folder_logit_difference"):
        if row["dtype"] == "fp32" and not row[name] <= LOGIT_LIMIT:
            sentences.append(f"{where}: {name}: found {row[name]:.3g}, expected at most {LOGIT_LIMIT}")
    return sentences


def row_key(row):
    return [row[name] for name in ("model", "head", "dtype", "isa")] + [row.get("seed", SEED)]


def record(path, rows):
    """Adds rows to a file, in place of those with the same key."""
    keys = [row_key(row) for row in rows]
    with support.locked(path):
        found = support.read_json(path, {"results": []})["results"]
        rows = sorted([row for row in found if row_key(row) not in keys] + rows, key=row_key)
        support.write_json(path, {"versions": goldens.versions(), "results": rows})


def run_held_to(isa, references):
    """Runs this program with this instruction set only; the last --isas counts."""
    return subprocess.run([sys.executable, *sys.argv, "--isas", isa, "--references", references],
                          env={**os.environ, **support.HELD_TO.get(isa, {})}).returncode


def float64_reference(path, make, examples, losses_of, with_curve):
    """Logits, losses, gradients and losses of the AdamW steps; kept in a file for the other instruction sets."""
    if path and path.exists():
        return torch.load(path)
    found = (*goldens.gradients(make().double(), examples, losses_of),
             goldens.adamw_run(make().double(), examples, losses_of)[0] if with_curve else None)
    if path:
        torch.save(found, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["bert-small", "distilbert-small"])
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=HEADS)
    parser.add_argument("--isas", nargs="+", default=[""], help="instruction sets (default: the best of this CPU)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the random weights and examples")
    parser.add_argument("--steps", type=int, default=10, help="AdamW steps; 0: gradients only")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/tilewright-parity-gradients"))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--references", type=pathlib.Path, help="directory for the float64 references of this run")
    arguments = parser.parse_args()
    if not all(support.HELD_TO.get(isa, {}).items() <= os.environ.items() for isa in arguments.isas):
        # PyTorch reads its instruction set when it starts.
        with tempfile.TemporaryDirectory() as references:
            codes = [run_held_to(isa, references) for isa in arguments.isas]
        sys.exit(any(codes))
    transformers.logging.set_verbosity_error()
    goldens.ADAMW_STEPS = arguments.steps
    goldens.ADAMW_LEARNING_RATE = arguments.learning_rate
    failures = []
    for name in arguments.models:
        family, sizes, lengths = MODELS[name]
        for head in arguments.heads:
            results = []
            with tempfile.TemporaryDirectory() as directory:
                directory = pathlib.Path(directory)
                model = make_model(family, head, sizes, arguments.seed)
                model.save_pretrained(str(directory / "hf"))
                # With an option that is not the default, so that its files must be complete.
                tokenizer = BertTokenizerFast(str(VOCABULARY), do_lower_case=False)
                tokenizer.save_pretrained(str(directory / "hf"))
                examples = make_examples(head, lengths, model.config.vocab_size, arguments.seed + 1)
                safetensors.torch.save_file(goldens.heads_inputs(head, examples), str(directory / "batch.safetensors"))
                rows = torch.cat([ids for ids, _, _ in examples]).unique()
                make = lambda: make_model(family, head, sizes, arguments.seed)  # noqa: E731
                alone = goldens.heads_losses_alone(family, head)
                kept = arguments.references / f"{name}_{head}_{arguments.seed}.pt" if arguments.references else None
                logits, losses, exact, curve = float64_reference(kept, make, examples, alone, arguments.steps > 0)
                padded = goldens.heads_losses_padded(family, head)
                for dtype, losses_of in (("fp32", padded), ("bf16", goldens.in_bf16(padded))):
                    _, _, torch_found = goldens.gradients(make(), examples, losses_of)
                    errors = goldens.gradient_errors(torch_found, exact)
                    del torch_found
                    for isa in arguments.isas:
                        out = directory / f"{dtype}_{isa}"
                        found = run_tilewright(arguments.program, directory / "hf", head,
                                               directory / "batch.safetensors", out, dtype, isa, arguments.steps,
                                               arguments.learning_rate)
                        ratio, tensor = compare(found, exact, errors, rows,
                                                model.config.num_hidden_layers, dtype)
                        row = {"model": name, "head": head, "dtype": dtype, "isa": isa or "best",
                               "seed": arguments.seed,
                               "worst_error_of_allowed": ratio, "worst_tensor": tensor,
                               "loss": float(found["loss"]), "pytorch_loss": float(losses.mean()),
                               "largest_logit_difference": float((found["logits"].double() - logits).abs().max())}
                        if arguments.steps:
                            row["largest_curve_difference"] = float(
                                (found["adamw.losses"].double() - curve).abs().max())
                        if dtype == "fp32":
                            row["folder_logit_difference"] = check_folder(out / "model", family, head, model,
                                                                          directory / "hf", examples,
                                                                          found["logits"])
                        failures += beyond_limits(row)
                        results.append(row)
                        print(json.dumps(row), flush=True)
            if arguments.json:
                record(arguments.json, results)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
