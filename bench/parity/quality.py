"""Compares the quality of models that Tilewright and Hugging Face's Trainer train, over seeds.

    python bench/parity/quality.py run --worker build/release/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data DATA [--tasks mrpc squad] [--minutes 60]
    python bench/parity/quality.py table

DATA holds glue/ and squad/. Both sides get the same flags, and the Trainer pads each batch to its
longest example. A task has enough seeds if each side has the minimum and the standard error of the
difference is below 0.7 points; the sides agree if the difference is within three standard errors.
Both sides use bf16 if the CPU has bf16 instructions, otherwise fp32; the table has a row for each.
Every finished run is added to bench/results/parity.json and recorded runs are skipped, so the
script can be stopped and restarted at any time. Runs of all CPUs are compared together: a seed gives
Tilewright the same weights on each CPU with the same instruction set. The Trainer's windows, answers and metrics of SQuAD
are those of tests/golden/squad; its loss counts padding, so Tilewright has --loss_counts_padding. Needs
requirements.txt.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
import support  # noqa: E402

# The flags of run_glue and run_qa in the guides, but 1e-4 in place of 2e-5 and 3e-5, because MiniLM is
# smaller than their models: with 2e-5 it learns little of CoLA.
GLUE = {"points": 100, "batch": 32, "max_seq_length": 128, "seeds": 5}
SQUAD = {"metric": "f1", "points": 1, "batch": 12, "max_seq_length": 384, "doc_stride": 128,
         "epochs": 2, "learning_rate": 1e-4, "seeds": 5}
# Of each task: metric to compare, its scale in points, hyperparameters and minimum number of seeds.
TASKS = {
    "mrpc": {**GLUE, "metric": "accuracy", "epochs": 3, "learning_rate": 1e-4, "seeds": 10},
    "sst2": {**GLUE, "metric": "accuracy", "epochs": 1, "learning_rate": 5e-5, "rows": 8000},
    "rte": {**GLUE, "metric": "accuracy", "epochs": 3, "learning_rate": 1e-4},
    "cola": {**GLUE, "metric": "matthews_correlation", "epochs": 3, "learning_rate": 1e-4},
    "squad": {**SQUAD, "train_file": "train-v1.1.json", "validation_file": "xquad.en.json"},
    "squad_v2": {**SQUAD, "train_file": "train-v2.0.json", "validation_file": "dev-v2.0.json",
                 "version_2_with_negative": True},
}
N_BEST, MAX_ANSWER_LENGTH = 20, 30  # run_qa's defaults
SIDES = ("tilewright", "trainer")
DATA_TYPES = ("bf16", "fp32")
MAX_ERROR = 0.7  # points, standard error of the difference
MAX_SEEDS = 100
SECONDS = ("seconds", "train_seconds", "eval_seconds")
PADDINGS = ("dynamic", "grouped", "full")
RESULTS = support.results_folder() / "parity.json"


def is_squad(task):
    return "doc_stride" in TASKS[task]


def squad_file(data, task, name):
    return pathlib.Path(data) / "squad" / TASKS[task][name]


def data_flags(data, task):
    if not is_squad(task):
        return {"data_dir": support.glue_folder(data, task)}
    files = {name: squad_file(data, task, name) for name in ("train_file", "validation_file")}
    return {**files, "doc_stride": TASKS[task]["doc_stride"]}


def loss_flags(task):
    """Flags with which Tilewright computes the Trainer's loss."""
    return {"loss_counts_padding": True} if is_squad(task) else {}


def run_tilewright(args, task, seed, **flags):
    """`flags`: of `train`, in addition or instead."""
    settings = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        peak_mib = support.train(
            args.worker,
            **{
                "task_name": task,
                "model_name_or_path": args.model,
                **data_flags(args.data, task),
                "output_dir": f"{folder}/out",
                "num_train_epochs": settings["epochs"],
                "learning_rate": settings["learning_rate"],
                "max_train_samples": settings.get("rows", -1),
                "max_seq_length": settings["max_seq_length"],
                "per_device_train_batch_size": settings["batch"],
                "seed": seed,
                "bf16": args.data_type == "bf16",
                "save_strategy": "no",
                "threads": args.threads,
                **flags,
            },
        )
        return {
            "seconds": time.monotonic() - began,
            "peak_mib": peak_mib,
            **result_of(support.read_json(f"{folder}/out/all_results.json")),
            "versions": {"worker": support.worker_version(args.worker)},
        }


def result_of(found):
    names = ("accuracy", "f1", "matthews_correlation", "exact_match", "exact", "HasAns_f1",
             "NoAns_f1", "loss")
    return {
        "metrics": {name: found[f"eval_{name}"] for name in names if f"eval_{name}" in found},
        "train_loss": found["train_loss"],
        "train_seconds": found["train_runtime"],
        "eval_seconds": found["eval_runtime"],
    }


def run_trainer(args, task, seed, python=sys.executable, **options):
    """Runs the Trainer in a subprocess. `options`: of the command `trainer`, in addition."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/result.json"
        began = time.monotonic()
        subprocess.run(
            [python, __file__, "trainer", "--task", task, "--seed", str(seed), "--out", out,
             "--model", args.model, "--data", args.data, "--threads", str(args.threads),
             "--data_type", args.data_type, *support.flags_of(options)],
            check=True,
            env=support.with_tcmalloc(os.environ),
        )
        return {"seconds": time.monotonic() - began, **support.read_json(out)}


def trainer_process(args):
    import torch
    import transformers

    settings = TASKS[args.task]
    rows = args.rows or settings.get("rows")
    torch.set_num_threads(args.threads)
    transformers.set_seed(args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    prepare = prepare_squad if is_squad(args.task) else prepare_glue
    model, train, dev, metrics = prepare(args, transformers, tokenizer, rows)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                num_train_epochs=args.epochs or settings["epochs"],
                group_by_length=args.padding == "grouped",
                learning_rate=settings["learning_rate"],
                per_device_train_batch_size=settings["batch"],
                lr_scheduler_type="linear",
                warmup_steps=0,
                weight_decay=0.0,
                max_grad_norm=1.0,
                bf16=args.data_type == "bf16",
                use_cpu=True,
                seed=args.seed,
                save_strategy="no",
                logging_steps=20,
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=train,
            eval_dataset=dev,
            data_collator=transformers.DataCollatorWithPadding(
                tokenizer,
                padding="max_length" if args.padding == "full" else "longest",
                max_length=settings["max_seq_length"],
            ),
            compute_metrics=metrics,
        )
        trained = trainer.train().metrics
        found = {**trained, **trainer.evaluate()}
    support.write_json(
        args.out,
        {
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **result_of(found),
            "versions": support.peer_versions(),
        },
    )


def prepare_glue(args, transformers, tokenizer, rows):
    """Returns the model, the first `rows` training examples (None: all), the development examples,
    and the metrics function."""
    import numpy as np

    settings = TASKS[args.task]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def examples(split, rows):
        folder = support.glue_folder(args.data, args.task)
        labels, texts = support.read_glue(folder, args.task, split, rows)
        encoded = tokenizer(*texts, truncation=True, max_length=settings["max_seq_length"])
        return [
            {**{name: column[i] for name, column in encoded.items()}, "labels": labels[i]}
            for i in range(len(labels))
        ]

    def metrics(evaluated):
        picked = evaluated.predictions.argmax(-1)
        truth = evaluated.label_ids
        if args.task == "cola":
            return {"matthews_correlation": float(np.corrcoef(picked, truth)[0, 1])
                    if len(set(picked)) > 1 else 0.0}
        found = {"accuracy": float((picked == truth).mean())}
        if args.task == "mrpc":
            hits = int(((picked == 1) & (truth == 1)).sum())
            found["f1"] = 2 * hits / max(1, int((picked == 1).sum() + (truth == 1).sum()))
        return found

    return model, examples("train", rows), examples("dev", None), metrics


def prepare_squad(args, transformers, tokenizer, rows):
    """The same for run_qa's windows, of the first `rows` questions."""
    sys.path.insert(0, str(BENCH.parent / "tests/golden/squad"))
    import write_squad_goldens as squad

    settings = TASKS[args.task]
    negative = settings.get("version_2_with_negative", False)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(args.model)

    def windows(name, limit):
        questions = squad.read_examples(squad_file(args.data, args.task, name))[:limit]
        features = squad.make_features(tokenizer, questions, settings["max_seq_length"],
                                       settings["doc_stride"])
        return questions, features, [
            {"input_ids": feature["ids"], "token_type_ids": feature["types"],
             "attention_mask": [1] * len(feature["ids"]),
             "start_positions": feature["start"], "end_positions": feature["end"]}
            for feature in features
        ]

    _, _, train = windows("train_file", rows)
    questions, features, dev = windows("validation_file", None)

    def metrics(evaluated):
        starts, ends = evaluated.predictions
        # Without the padding of the batches.
        logits = [(start[:len(feature["ids"])], end[:len(feature["ids"])])
                  for feature, start, end in zip(features, starts, ends)]
        answers, _ = squad.predict(questions, features, logits, negative, 0.0, N_BEST,
                                   MAX_ANSWER_LENGTH, refuse_ties=False)
        scores = (squad.squad_metrics.squad_evaluate(questions, answers) if negative
                  else squad.score_v1(questions, answers))
        return {name: float(value) for name, value in scores.items()}

    return model, train, dev, metrics


def recorded():
    return support.read_json(RESULTS, {"runs": []})["runs"]


def record(entry):
    """Adds a run under a file lock, so that concurrent programs can record runs."""
    with support.locked(RESULTS):
        runs = recorded() + [entry]
        runs.sort(key=lambda run: (run["task"], data_type_of(run), run["side"], run["seed"]))
        support.write_json(RESULTS, {"settings": TASKS, "runs": runs})


def data_type_of(run):
    return run.get("data_type", "bf16")  # the first runs did not record it


def select(runs, task, data_type):
    return [run for run in runs if run["task"] == task and data_type_of(run) == data_type]


def values_of(runs, side):
    """Returns the values of a task's metric in points. `runs`: of one task and data type."""
    return [TASKS[run["task"]]["points"] * run["metrics"][TASKS[run["task"]]["metric"]]
            for run in runs if run["side"] == side]


def comparison(runs):
    """Returns the difference of the means and its standard error in points, if it is known."""
    sides = [values_of(runs, side) for side in SIDES]
    if any(len(values) < 2 for values in sides):
        return None, None
    difference = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    return difference, sum(statistics.variance(v) / len(v) for v in sides) ** 0.5


def next_run(args):
    """Returns the task, side and seed to run next; alternates the sides. None: all is recorded."""
    for task in args.tasks:
        runs = select(recorded(), task, args.data_type)
        _, error = comparison(runs)
        done = {(run["side"], run["seed"]) for run in runs}
        for seed in range(1, MAX_SEEDS + 1):
            enough = max(TASKS[task]["seeds"], args.seeds)
            if seed > enough and error is not None and error < MAX_ERROR:
                break
            for side in SIDES if args.side == "both" else (args.side,):
                if (side, seed) not in done:
                    return task, side, seed
    return None


def run_all(args):
    deadline = time.monotonic() + 60 * args.minutes
    while (found := next_run(args)) is not None and time.monotonic() < deadline:
        task, side, seed = found
        print(f"{task}, {side}, seed {seed}", flush=True)
        result = (run_trainer(args, task, seed) if side == "trainer"
                  else run_tilewright(args, task, seed, **loss_flags(task)))
        if args.no_seconds:
            result = {name: value for name, value in result.items() if name not in SECONDS}
        record({"task": task, "data_type": args.data_type, "side": side, "seed": seed, **result,
                "cpu": support.cpu_name()})
        print(f"{task}, {side}, seed {seed}: {result['metrics']}", flush=True)
    table(args)


def table(_args):
    print("| task | data type | Tilewright | Trainer | difference | verdict | seconds | peak MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        for data_type in DATA_TYPES:
            runs = select(recorded(), task, data_type)
            if runs:
                print_row(task, data_type, runs)


def print_row(task, data_type, runs):
    def cell(side):
        values = values_of(runs, side)
        if not values:
            return "none yet"
        spread = ""
        if len(values) > 1:
            spread = f" ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"
        return f"{statistics.fmean(values):.2f}{spread} ({len(values)})"

    def median(side, field):
        values = [run[field] for run in runs if run["side"] == side and field in run]
        return f"{statistics.median(values):.0f}" if values else "?"

    difference, error = comparison(runs)
    seeds = [len(values_of(runs, side)) for side in SIDES]
    verdict = "not enough seeds"
    if error is not None and min(seeds) >= TASKS[task]["seeds"] and error < MAX_ERROR:
        verdict = "equal" if abs(difference) <= 3 * error else "different"
    shown = "" if error is None else f"{difference:+.2f} ± {error:.2f}"
    pairs = [" / ".join(median(side, field) for side in SIDES) for field in ("seconds", "peak_mib")]
    cells = [f"{task} {TASKS[task]['metric']}", data_type, *(cell(side) for side in SIDES), shown,
             verdict, *pairs]
    print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="run the seeds that the results do not have yet")
    run.add_argument("--worker", help="tilewright-worker; not needed for --side=trainer")
    run.add_argument("--side", choices=(*SIDES, "both"), default="both")
    run.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    run.add_argument("--seeds", type=int, default=0, help="at least so many")
    run.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this")
    run.add_argument("--no_seconds", action="store_true",
                     help="record no durations, because other programs use the cores")
    run.set_defaults(call=run_all)

    one = commands.add_parser("trainer", help="one run of the Trainer (used by run)")
    one.add_argument("--task", choices=TASKS, required=True)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--padding", choices=PADDINGS, default=PADDINGS[0])
    one.add_argument("--epochs", type=int)
    one.add_argument("--rows", type=int)
    one.set_defaults(call=trainer_process)
    for command in (run, one):
        command.add_argument("--model", required=True)
        command.add_argument("--data", required=True, help="directory with glue/ and squad/")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--data_type", choices=DATA_TYPES, default=support.data_type())

    show = commands.add_parser("table", help="means, standard errors, differences")
    show.set_defaults(call=table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
