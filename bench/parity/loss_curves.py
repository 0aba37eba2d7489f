"""Compares loss curves with PyTorch: same weights, batches and order of examples.

    python bench/parity/loss_curves.py --worker build/release/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data DATA [--tasks mrpc] [--families bert]

DATA holds glue/ and squad/. DistilBERT is `--model` in DistilBERT's layout: the vectors of token type
0 are added to the positions. PyTorch's loop has the Trainer's defaults (AdamW, clipping at 1, linear
decay), no dropout or, with --dropout, Tilewright's masks, and pads each batch to its longest example.
Question answering: run_qa's loss counts the padding of the batch, so Tilewright has --loss_counts_padding.
Differences jump where one side's ReLU (DistilBERT's classifier) passes a gradient and the other's does
not: AdamW makes a full step of a gradient of any size.
Writes bench/results/loss_curves-CPU.json and a plot of each case; curves that are recorded with the
same settings and versions are kept. Needs requirements.txt.
"""

import argparse
import pathlib
import sys
import tempfile

import torch
import transformers

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "parity")]
import dropout  # noqa: E402
import quality  # noqa: E402
import support  # noqa: E402
import svg  # noqa: E402

FAMILIES = ("bert", "distilbert")
CURVES = ("tilewright_fp32", "tilewright_bf16", "pytorch_fp32", "pytorch_bf16")
REFERENCE = "pytorch_fp32"


def shuffled(examples, seed, epoch):
    """Example order of an epoch as in worker/train/data_order.cpp: Fisher-Yates with SplitMix64."""
    state = dropout.split_mix(seed, 1) + epoch
    order = list(range(examples))
    for n, i in enumerate(range(examples, 1, -1), start=1):
        j = ((dropout.split_mix(state, n) >> 32) * i) >> 32
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def as_distilbert(bert):
    """The DistilBERT with the layers of a BertModel."""
    source = bert.config
    model = transformers.DistilBertModel(transformers.DistilBertConfig(
        vocab_size=source.vocab_size, dim=source.hidden_size, n_layers=source.num_hidden_layers,
        n_heads=source.num_attention_heads, hidden_dim=source.intermediate_size,
        max_position_embeddings=source.max_position_embeddings))
    names = {"attention.self.query": "attention.q_lin", "attention.self.key": "attention.k_lin",
             "attention.self.value": "attention.v_lin", "attention.output.dense": "attention.out_lin",
             "attention.output.LayerNorm": "sa_layer_norm", "intermediate.dense": "ffn.lin1",
             "output.dense": "ffn.lin2", "output.LayerNorm": "output_layer_norm"}
    state = {}
    for name, value in bert.state_dict().items():
        if name.startswith("encoder.layer."):
            layer, tensor = name.removeprefix("encoder.layer.").split(".", 1)
            tensor, kind = tensor.rsplit(".", 1)
            state[f"transformer.layer.{layer}.{names[tensor]}.{kind}"] = value
        elif name.startswith("embeddings.") and "token_type" not in name:
            state[name] = value
    types = bert.embeddings.token_type_embeddings.weight
    state["embeddings.position_embeddings.weight"] = (
        state["embeddings.position_embeddings.weight"] + types[0])
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and set(unexpected) <= {"embeddings.position_ids"}, (missing, unexpected)
    return model


def make_model(args, task, family, folder):
    """Saves the model with a head from args.seed, without dropout unless args.dropout, and its
    tokenizer."""
    source = args.model
    if family == "distilbert":
        source = f"{folder}-encoder"
        as_distilbert(transformers.BertModel.from_pretrained(args.model)).save_pretrained(source)
    head = (transformers.AutoModelForQuestionAnswering if quality.is_squad(task)
            else transformers.AutoModelForSequenceClassification)
    none = ({"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0}
            if family == "distilbert" else
            {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0})
    torch.manual_seed(args.seed)
    model = head.from_pretrained(source, **({} if args.dropout else none))
    torch.nn.init.normal_((model.qa_outputs if quality.is_squad(task) else model.classifier).weight,
                          std=0.02)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(args.model).save_pretrained(folder)


def tilewright_losses(args, task, folder, bf16):
    settings = quality.TASKS[task]
    with tempfile.TemporaryDirectory() as output:
        support.train(
            args.worker,
            task_name=task,
            model_name_or_path=folder,
            **quality.data_flags(args.data, task),
            **quality.loss_flags(task),
            output_dir=f"{output}/out",
            max_steps=args.steps,
            max_seq_length=settings["max_seq_length"],
            per_device_train_batch_size=settings["batch"],
            learning_rate=settings["learning_rate"],
            seed=args.seed,
            bf16=bf16,
            logging_steps=1,
            save_strategy="no",
            do_eval=False,
            threads=args.threads,
        )
        history = support.read_json(f"{output}/out/trainer_state.json")["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def loss_of(outputs, batch):
    cross_entropy = torch.nn.functional.cross_entropy
    if "start_positions" not in batch:
        return cross_entropy(outputs.logits.float(), batch["labels"])
    return sum(cross_entropy(logits.float(), batch[target]) / 2
               for logits, target in ((outputs.start_logits, "start_positions"),
                                      (outputs.end_logits, "end_positions")))


def pytorch_losses(args, task, folder, bf16):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prepare = quality.prepare_squad if quality.is_squad(task) else quality.prepare_glue
    given = argparse.Namespace(task=task, model=folder, data=args.data)
    model, examples, _, _ = prepare(given, transformers, tokenizer, None)
    inputs = {"input_ids", "attention_mask"}
    if model.config.model_type == "bert":
        inputs.add("token_type_ids")
    pad = transformers.DataCollatorWithPadding(tokenizer)
    if args.dropout:  # of probabilities it is a module in eager attention only
        model = type(model).from_pretrained(folder, attn_implementation="eager")
    model.train()
    key = dropout.replace(model, args.seed)
    rate, size = quality.TASKS[task]["learning_rate"], quality.TASKS[task]["batch"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    per_epoch = (len(examples) + size - 1) // size
    losses = []
    for step in range(args.steps):
        if step % per_epoch == 0:
            order = shuffled(len(examples), args.seed, step // per_epoch)
        key.begin(step)
        begin = step % per_epoch * size
        batch = pad([examples[i] for i in order[begin:begin + size]])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            outputs = model(**{name: batch[name] for name in inputs})
        loss = loss_of(outputs, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / args.steps)
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


def case_settings(args, task):
    return {
        "steps": args.steps,
        "batch": quality.TASKS[task]["batch"],
        "learning_rate": quality.TASKS[task]["learning_rate"],
        "seed": args.seed,
        "cpu": support.cpu_name(),
        "versions": {"worker": support.worker_version(args.worker), **support.peer_versions()},
    }


def case_name(args, task, family):
    return f"{task}-{family}" + ("-dropout" if args.dropout else "")


def recorded(case, settings):
    """The case with its curves if it has these settings, else without curves."""
    found = support.read_json(support.results_file("loss_curves"), {}).get(case, {})
    same = all(found.get(key) == value for key, value in settings.items())
    return found if same else {**settings, "losses": {}}


def add(args, task, family, name, losses):
    """Adds a curve; draws the case when it is complete."""
    path = support.results_file("loss_curves")
    case = case_name(args, task, family)
    with support.locked(path):
        found = recorded(case, case_settings(args, task))
        curves = found["losses"]
        curves[name] = losses
        if REFERENCE in curves:
            found["differences"] = {
                f"{other} to {REFERENCE}": difference(curve, curves[REFERENCE])
                for other, curve in curves.items()
                if other != REFERENCE
            }
        support.write_json(path, {**support.read_json(path, {}), case: found})
    if len(curves) < len(CURVES):
        return
    masks = "same dropout" if args.dropout else "no dropout"
    title = f"Loss of {family} on {task}, {len(losses)} steps, {masks}, same order and weights"
    path.with_name(f"{path.stem}-{case}.svg").write_text(
        svg.loss_figure(title, {other: curves[other] for other in CURVES}, REFERENCE))
    for pair, distance in found["differences"].items():
        print(f"{case}: {pair}: largest {distance['largest']:.2e}, mean {distance['mean']:.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True, help="directory of a BERT")
    parser.add_argument("--data", required=True, help="directory with glue/ and squad/")
    parser.add_argument("--tasks", nargs="+", choices=quality.TASKS, default=["mrpc", "squad"])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--dropout", action="store_true", help="with dropout, same masks")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()

    for task in args.tasks:
        for family in args.families:
            known = recorded(case_name(args, task, family), case_settings(args, task))["losses"]
            with tempfile.TemporaryDirectory() as directory:
                folder = f"{directory}/model"
                make_model(args, task, family, folder)
                for name in args.curves:
                    if name in known:
                        continue
                    program, dtype = name.split("_")
                    run = tilewright_losses if program == "tilewright" else pytorch_losses
                    add(args, task, family, name, run(args, task, folder, dtype == "bf16"))


if __name__ == "__main__":
    main()
