"""Compares loss curves over 100 MRPC steps with PyTorch: same data order and head, no dropout.

    python bench/loss_curve.py --worker build/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

Writes bench/results/loss_curve-CPU.json and .svg. Needs torch and transformers. --curves
selects which of the four curves to run; recorded curves with the same settings are kept.
"""

import argparse
import pathlib
import shutil
import tempfile

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

import support
from svg import loss_figure

BATCH = 32
MASK = (1 << 64) - 1


def shuffled(examples, seed, epoch):
    """Example order of an epoch as in worker/train/data_order.cpp: Fisher-Yates with SplitMix64."""
    state = (seed * 0x9E3779B97F4A7C15 + epoch + 1) & MASK
    order = list(range(examples))
    for i in range(examples, 1, -1):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        j = ((z >> 32) * i) >> 32
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def make_model(source, folder, seed):
    """Saves a classifier with a head initialized from `seed`, and its tokenizer."""
    torch.manual_seed(seed)
    model = BertForSequenceClassification.from_pretrained(
        source,
        num_labels=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.0,
    )
    model.save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        file = pathlib.Path(source) / name
        if file.exists():
            shutil.copy(file, folder)


def tilewright_losses(args, model, bf16):
    with tempfile.TemporaryDirectory() as output:
        support.train(
            args.worker,
            task_name="mrpc",
            model_name_or_path=model,
            data_dir=args.data,
            output_dir=f"{output}/out",
            max_steps=args.steps,
            per_device_train_batch_size=BATCH,
            learning_rate=args.learning_rate,
            seed=args.seed,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
            classifier_dropout=0,
            bf16=bf16,
            logging_steps=1,
            save_strategy="no",
            do_eval=False,
            threads=args.threads,
        )
        history = support.read_json(f"{output}/out/trainer_state.json")["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def pytorch_losses(args, folder, bf16):
    """A PyTorch loop with the Trainer's defaults: AdamW, clipping at 1, linear decay."""
    labels, texts = support.read_glue(args.data, "mrpc", "train")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    per_epoch = (len(labels) + BATCH - 1) // BATCH
    losses = []
    for step in range(args.steps):
        if step % per_epoch == 0:
            order = shuffled(len(labels), args.seed, step // per_epoch)
        begin = step % per_epoch * BATCH
        picked = order[begin : begin + BATCH]
        batch = tokenizer(
            *([column[i] for i in picked] for column in texts),
            truncation=True,
            max_length=128,
            padding=True,
            return_tensors="pt",
        )
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            logits = model(**batch).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float(), torch.tensor([labels[i] for i in picked])
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * (1 - step / args.steps)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}/{args.steps}: loss {losses[-1]:.4f}", flush=True)
    return losses


def difference(a, b):
    """Largest and mean absolute difference of two curves."""
    distances = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return {"largest": max(distances), "mean": sum(distances) / len(distances)}


CURVES = {
    "tilewright_fp32": (tilewright_losses, False),
    "tilewright_bf16": (tilewright_losses, True),
    "pytorch_fp32": (pytorch_losses, False),
    "pytorch_bf16": (pytorch_losses, True),
}


def add(args, name, losses):
    """Adds a curve to those with the same settings; compares and draws all four when complete."""
    path = support.results_file("loss_curve")
    settings = {
        "task": "mrpc",
        "steps": args.steps,
        "batch": BATCH,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "cpu": support.cpu_name(),
        "versions": {"worker": support.worker_version(args.worker), **support.peer_versions()},
    }
    with support.locked(path):
        found = support.read_json(path, {})
        if any(found.get(key) != value for key, value in settings.items()):
            found = {**settings, "losses": {}}
        curves = found["losses"]
        curves[name] = losses
        if "pytorch_fp32" in curves:
            found["differences"] = {
                f"{other} to pytorch_fp32": difference(curve, curves["pytorch_fp32"])
                for other, curve in curves.items()
                if other != "pytorch_fp32"
            }
        support.write_json(path, found)
    if len(curves) < len(CURVES):
        return
    path.with_suffix(".svg").write_text(
        loss_figure({other: curves[other] for other in CURVES}, reference="pytorch_fp32")
    )
    for pair, distance in found["differences"].items():
        print(f"{pair}: largest {distance['largest']:.2e}, mean {distance['mean']:.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="directory with MRPC's train.tsv")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    with tempfile.TemporaryDirectory() as folder:
        make_model(args.model, folder, args.seed)
        for name in args.curves:
            run, bf16 = CURVES[name]
            add(args, name, run(args, folder, bf16))


if __name__ == "__main__":
    main()
