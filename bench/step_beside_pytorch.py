"""Compares `tilewright-worker bench step` with a PyTorch script, in alternating runs.

    python bench/step_beside_pytorch.py --worker build/bin/tilewright-worker \
        --peer ../shared/peers/torch_step.py --peer-python python3

The peer is a script outside the project. It accepts --model, --task, --bs, --seq, --steps and
--threads, and prints a line with "times [seconds, ...]" and "GF/s ...". The first two times are
warm-up. Writes bench/results/step.json and prints a table. Run it on an idle machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import support

SHAPES = ["bert-base:cls:32:128", "minilm:cls:32:128", "bert-base:qa:12:384"]
PEER_WARM_UP = 2


def parse_shape(text):
    model, task, batch, length = text.split(":")
    return {"model": model, "task": task, "batch": int(batch), "length": int(length)}


def ours(args, shape):
    # A classification head for every shape: its cost is negligible next to the encoder.
    command = [args.worker, "bench", "step", "--json", "--model", shape["model"]]
    command += ["--batch", str(shape["batch"]), "--seq", str(shape["length"])]
    command += ["--steps", str(args.steps), "--threads", str(args.threads)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(said)


def theirs(args, shape):
    command = [args.peer_python, args.peer, "--model", shape["model"], "--task", shape["task"]]
    command += ["--bs", str(shape["batch"]), "--seq", str(shape["length"])]
    command += ["--steps", str(args.steps), "--threads", str(args.threads)]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True, env=support.with_tcmalloc(os.environ)
    ).stdout
    times = re.search(r"times \[([^\]]*)\]", said)
    if times is None:
        sys.exit(f"{args.peer} printed no times:\n{said}")
    return [float(second) for second in times.group(1).split(",")][PEER_WARM_UP:]


def measure(args, shape):
    """Alternates the two programs `turns` times, so that system noise affects both."""
    reports, our_seconds, their_seconds = [], [], []
    for _ in range(args.turns):
        reports.append(ours(args, shape))
        our_seconds += reports[-1]["seconds"]
        their_seconds += theirs(args, shape)
    report = reports[0]
    # GFLOP/s of both by the formula of worker/nn/flops.h, derived from the report's median.
    flops = report["gflops"] * report["median_seconds"]
    row = {
        **shape,
        "threads": report["threads"],
        "isa": report["isa"],
        "dtype": report["dtype"],
        "peak_gflops": statistics.median(r["peak_gflops"] for r in reports),
    }
    for side, seconds in (("tilewright", our_seconds), ("pytorch", their_seconds)):
        median = statistics.median(seconds)
        row[side] = {
            "seconds": seconds,
            "median_seconds": median,
            "examples_per_second": shape["batch"] / median,
            "gflops": flops / median,
            "share_of_peak": flops / median / row["peak_gflops"],
        }
    row["speed_up"] = row["pytorch"]["median_seconds"] / row["tilewright"]["median_seconds"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--peer", required=True, help="the PyTorch script")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="MODEL:cls|qa:BATCH:LENGTH")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default=support.results_folder() / "step.json")
    args = parser.parse_args()
    if args.turns * args.steps < 5:
        print("fewer than five steps per program: a trial, not a measurement", file=sys.stderr)

    rows = []
    for shape in args.shapes:
        rows.append(measure(args, parse_shape(shape)))
        print(f"{shape}: {rows[-1]['speed_up']:.2f} times PyTorch's speed", file=sys.stderr)
    versions = subprocess.run(
        [args.peer_python, "-c",
         "import torch, transformers; print(torch.__version__, transformers.__version__)"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    allocator = support.with_tcmalloc({}).get("LD_PRELOAD", "")
    support.write_json(
        args.out,
        {
            "cpu": support.cpu_name(),
            "versions": {
                "worker": support.worker_version(args.worker),
                "torch": versions[0],
                "transformers": versions[1],
            },
            "pytorch_allocator": os.path.basename(allocator) or "the C library's",
            "rows": rows,
        },
    )
    timed = args.turns * args.steps
    print(f"{support.cpu_name()}, {args.threads} threads, bf16, medians of {timed}\n")
    print("| step | Tilewright s | of the peak | PyTorch s | of the peak | speed |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        a, b = row["tilewright"], row["pytorch"]
        print(
            f"| {row['model']} {row['batch']} x {row['length']} "
            f"| {a['median_seconds']:.3f} | {100 * a['share_of_peak']:.0f} % "
            f"| {b['median_seconds']:.3f} | {100 * b['share_of_peak']:.0f} % "
            f"| {row['speed_up']:.2f} x |"
        )


if __name__ == "__main__":
    main()
