"""Compares the time of trainings and evaluations with Hugging Face's Trainer, in alternating runs.

    python bench/trainings.py --worker build/release/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data ../shared/data --peer-python python3

A training is TASK:PADDING, one epoch of parity/quality.py's task (of SQuAD the first 600 questions)
and the evaluation after it. PADDING is the Trainer's: dynamic (to the longest example of a batch),
grouped (the same, and both sides use group_by_length) or full (to max_seq_length, as run_glue and
run_qa do by default). Tilewright pads nothing. The times are train_runtime and eval_runtime of both
sides. Run it on an idle machine; rows that this commit has measured are kept unless --again is given.
"""

import argparse
import pathlib
import statistics
import sys

import step_vs_pytorch
import support
from results import Results, commit_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "parity"))
import quality  # noqa: E402

TRAININGS = ["mrpc:dynamic", "mrpc:grouped", "mrpc:full", "cola:dynamic", "cola:grouped",
             "squad:dynamic", "squad:grouped", "squad:full"]
ROWS = {"squad": 600}  # others: all
TURNS = 5


def parse_training(text):
    task, _, padding = text.partition(":")
    if task not in quality.TASKS or padding not in quality.PADDINGS:
        raise argparse.ArgumentTypeError(f'found "{text}", expected TASK:PADDING')
    return {"task": task, "padding": padding}


def run_tilewright(args, training, seed):
    task = training["task"]
    flags = {"max_train_samples": ROWS[task]} if task in ROWS else {}
    return quality.run_tilewright(args, task, seed, num_train_epochs=1,
                                  group_by_length=training["padding"] == "grouped", **flags)


def run_trainer(args, training, seed):
    task = training["task"]
    options = {"rows": ROWS[task]} if task in ROWS else {}
    return quality.run_trainer(args, task, seed, python=args.peer_python, epochs=1,
                               padding=training["padding"], **options)


def side(runs):
    times = {name: [run[f"{name}_seconds"] for run in runs] for name in ("train", "eval")}
    return {f"{name}_seconds": values for name, values in times.items()} | {
        f"median_{name}_seconds": statistics.median(values) for name, values in times.items()}


def measure(args, training):
    """The figures of a row. Alternates the two programs, so that system noise affects both."""
    ours, theirs = [], []
    for turn in range(1, args.turns + 1):
        ours.append(run_tilewright(args, training, turn))
        theirs.append(run_trainer(args, training, turn))
    figures = {"tilewright": side(ours), "transformers": side(theirs)}
    for name, speed_up in (("train", "speed_up"), ("eval", "eval_speed_up")):
        median = f"median_{name}_seconds"
        figures[speed_up] = figures["transformers"][median] / figures["tilewright"][median]
    return figures


def run(args, commit, trainings):
    results = Results("training", commit, step_vs_pytorch.peer_versions(args))
    for training in trainings:
        key = {**training, "model": pathlib.Path(args.model).name, "threads": args.threads,
               "dtype": args.data_type}
        if results.has(key) and not args.again:
            continue
        row = results.put(key, measure(args, training))
        print(f"training: {training}: {row['speed_up']:.2f} x", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="directory with glue/ and squad/")
    parser.add_argument("--trainings", nargs="+", type=parse_training, metavar="TASK:PADDING",
                        default=[parse_training(text) for text in TRAININGS])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data_type", choices=quality.DATA_TYPES, default=support.data_type())
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--allow-dirty", action="store_true",
                        help="measure a tree with uncommitted changes and mark the rows")
    args = parser.parse_args()
    if args.turns < TURNS:
        print(f"fewer than {TURNS} turns: a trial, not a measurement", file=sys.stderr)
    if reason := support.missing_pytorch(args.peer_python):
        sys.exit(f"transformers cannot be measured: {reason}")
    run(args, commit_of(args.worker, args.allow_dirty), args.trainings)


if __name__ == "__main__":
    main()
