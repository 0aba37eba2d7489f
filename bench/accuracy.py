"""Compares the accuracy of Tilewright and Hugging Face's Trainer on the same data over seeds.

    python bench/accuracy.py run --worker build/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data GLUE [--side tilewright|trainer]
    python bench/accuracy.py table

Every finished run is added to bench/results/accuracy.json, and recorded runs are skipped, so the
script can be stopped and restarted at any time. Needs torch, transformers and accelerate.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import support

# Metric to compare, number of training rows and hyperparameters, equal for both sides.
TASKS = {
    "mrpc": {"metric": "accuracy", "rows": None, "epochs": 3, "learning_rate": 1e-4},
    "sst2": {"metric": "accuracy", "rows": 8000, "epochs": 1, "learning_rate": 5e-5},
}
SIDES = ("tilewright", "trainer")
BATCH = 32
MAX_LENGTH = 128
RESULTS = support.results_folder() / "accuracy.json"


def data_folder(args, task):
    return pathlib.Path(args.data) / support.FOLDERS[task]


def run_tilewright(args, task, seed):
    settings = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        support.train(
            args.worker,
            task_name=task,
            model_name_or_path=args.model,
            data_dir=data_folder(args, task),
            output_dir=f"{folder}/out",
            num_train_epochs=settings["epochs"],
            learning_rate=settings["learning_rate"],
            max_train_samples=settings["rows"] or -1,
            max_seq_length=MAX_LENGTH,
            per_device_train_batch_size=BATCH,
            seed=seed,
            bf16=True,
            save_strategy="no",
            threads=args.threads,
        )
        found = support.read_json(f"{folder}/out/all_results.json")
    return {
        "metrics": {name: found[f"eval_{name}"] for name in ("accuracy", "f1", "loss")
                    if f"eval_{name}" in found},
        "train_loss": found["train_loss"],
        "versions": {"worker": support.worker_version(args.worker)},
    }


def run_trainer(args, task, seed):
    """Runs the Trainer in a subprocess, with tcmalloc if installed, because it is faster."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/result.json"
        subprocess.run(
            [sys.executable, __file__, "trainer", "--task", task, "--seed", str(seed), "--out", out,
             "--model", args.model, "--data", args.data, "--threads", str(args.threads)],
            check=True,
            env=support.with_tcmalloc(os.environ),
        )
        return support.read_json(out)


def trainer_process(args):
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    settings = TASKS[args.task]
    torch.set_num_threads(args.threads)
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def examples(split, rows):
        labels, texts = support.read_glue(data_folder(args, args.task), args.task, split, rows)
        encoded = tokenizer(*texts, truncation=True, max_length=MAX_LENGTH)
        return [
            {**{name: column[i] for name, column in encoded.items()}, "labels": labels[i]}
            for i in range(len(labels))
        ]

    def metrics(evaluated):
        picked = evaluated.predictions.argmax(-1)
        truth = evaluated.label_ids
        hits = int(((picked == 1) & (truth == 1)).sum())
        found = {"accuracy": float((picked == truth).mean())}
        if args.task == "mrpc":
            found["f1"] = 2 * hits / max(1, int((picked == 1).sum() + (truth == 1).sum()))
        return found

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=settings["epochs"],
                learning_rate=settings["learning_rate"],
                per_device_train_batch_size=BATCH,
                lr_scheduler_type="linear",
                warmup_steps=0,
                weight_decay=0.0,
                max_grad_norm=1.0,
                bf16=True,
                use_cpu=True,
                seed=args.seed,
                save_strategy="no",
                logging_steps=20,
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=examples("train", settings["rows"]),
            eval_dataset=examples("dev", None),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=metrics,
        )
        trained = trainer.train()
        found = trainer.evaluate()
    support.write_json(
        args.out,
        {
            "metrics": {name: found[f"eval_{name}"] for name in ("accuracy", "f1", "loss")
                        if f"eval_{name}" in found},
            "train_loss": trained.training_loss,
            "versions": support.peer_versions(),
        },
    )


def recorded():
    return support.read_json(RESULTS, {"runs": []})["runs"]


def record(entry):
    """Adds a run under a file lock, so that concurrent programs can record runs."""
    with support.locked(RESULTS):
        runs = recorded() + [entry]
        runs.sort(key=lambda run: (run["task"], run["side"], run["seed"]))
        support.write_json(RESULTS, {"settings": TASKS, "batch": BATCH, "runs": runs})


def run_all(args):
    runner = {"tilewright": run_tilewright, "trainer": run_trainer}
    for side in SIDES if args.side == "both" else (args.side,):
        for seed in range(1, args.seeds + 1):
            for task in args.tasks:
                key = {"task": task, "side": side, "seed": seed}
                if any(key.items() <= run.items() for run in recorded()):
                    continue
                print(f"{task}, {side}, seed {seed}", flush=True)
                result = runner[side](args, task, seed)
                record({**key, **result, "cpu": support.cpu_name()})
                print(f"{task}, {side}, seed {seed}: {result['metrics']}", flush=True)


def summary(runs, task, side):
    """Returns seeds, mean and standard error of the mean (None below two seeds)."""
    metric = TASKS[task]["metric"]
    values = [r["metrics"][metric] for r in runs if r["task"] == task and r["side"] == side]
    if not values:
        return 0, None, None
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return len(values), statistics.fmean(values), error


def verdict(ours, theirs):
    """Returns the difference of the means in points and whether it is within the bounds."""
    if ours[1] is None or theirs[1] is None:
        return "", ""
    points = 100 * (ours[1] - theirs[1])
    if ours[2] is None or theirs[2] is None:
        return f"{points:+.2f}", "one seed: no standard error"
    error = 100 * (ours[2] ** 2 + theirs[2] ** 2) ** 0.5
    within = abs(points) <= 2 * error and abs(points) <= 1.5
    return f"{points:+.2f} ± {error:.2f}", "yes" if within else "no"


def table(_args):
    def cell(found):
        count, mean, error = found
        if mean is None:
            return "none yet"
        spread = f" ± {100 * error:.2f}" if error is not None else ""
        return f"{100 * mean:.2f}{spread} ({count})"

    runs = recorded()
    print("| task | Tilewright | Trainer | difference | within 2 standard errors and 1.5 points |")
    print("|---|---|---|---|---|")
    for task, settings in TASKS.items():
        ours, theirs = (summary(runs, task, side) for side in SIDES)
        points, within = verdict(ours, theirs)
        cells = [f"{task} {settings['metric']}", cell(ours), cell(theirs), points, within]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="run the seeds that the results do not have yet")
    run.add_argument("--worker", help="tilewright-worker; not needed for --side=trainer")
    run.add_argument("--side", choices=(*SIDES, "both"), default="both")
    run.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    run.add_argument("--seeds", type=int, default=5)
    run.set_defaults(call=run_all)

    one = commands.add_parser("trainer", help="one run of the Trainer (used by run)")
    one.add_argument("--task", choices=TASKS, required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--out", required=True)
    one.set_defaults(call=trainer_process)
    for command in (run, one):
        command.add_argument("--model", required=True)
        command.add_argument("--data", required=True, help="folder with GLUE's MRPC and SST-2")
        command.add_argument("--threads", type=int, default=2)

    show = commands.add_parser("table", help="means, standard errors, differences")
    show.set_defaults(call=table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
