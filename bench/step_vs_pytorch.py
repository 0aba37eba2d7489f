"""Compares `tilewright-worker bench step` with a PyTorch script, in alternating runs.

    python bench/step_vs_pytorch.py --worker build/release/bin/tilewright-worker \
        --peer ../shared/peers/torch_step.py --peer-python python3

The peer is a script outside the project. It accepts --model, --task, --bs, --seq, --steps, --dtype
and --threads, and prints a line with "times [seconds, ...]", rounded to hundredths. The first two times
are warm-up. Its DistilBERT has only the head for question answering. Both sides have the same head
and equally long examples. The operations of both are those of worker/nn/flops.h; of a classification,
PyTorch computes more in the last layer. A shape with an instruction set is computed in
fp32, and both sides use no later one.

Each shape replaces its row in bench/results/step-CPU.json; a row that this commit has measured is
kept unless --again is given. Run it on an idle machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import support
from results import Results, commit_of

SHAPES = [
    "distilbert:qa:32:384",
    "bert-base:qa:12:384",
    "bert-base:cls:32:128",
    "bert-large:qa:12:384",
    "minilm:cls:32:128",
    "minilm:cls:32:128:avx2",
    "minilm:cls:32:128:avx512",
    "bert-base:cls:8:128:avx2",
    "bert-base:cls:8:128:avx512",
]
SHAPE = "MODEL:cls|qa:BATCH:LENGTH[:avx2|avx512]"
PEER_WARM_UP = 2


def parse_shape(text):
    parts = text.split(":")
    good = (len(parts) in (4, 5) and parts[1] in ("cls", "qa") and parts[2].isdigit()
            and parts[3].isdigit() and (len(parts) == 4 or parts[4] in support.HELD_TO))
    if not good:
        raise argparse.ArgumentTypeError(f'found "{text}", expected {SHAPE}')
    shape = {"model": parts[0], "task": parts[1], "batch": int(parts[2]), "length": int(parts[3])}
    return {**shape, "isa": parts[4]} if len(parts) == 5 else shape


def environment(shape):
    return {**os.environ, **support.HELD_TO.get(shape.get("isa"), {})}


def run_tilewright(args, shape):
    command = [args.worker, "bench", "step", "--json", "--model", shape["model"]]
    command += ["--task", shape["task"], "--batch", str(shape["batch"])]
    command += ["--seq", str(shape["length"]), "--steps", str(args.steps)]
    command += ["--threads", str(args.threads)] + (["--fp32"] if "isa" in shape else [])
    said = subprocess.run(command, check=True, capture_output=True, text=True,
                          env=environment(shape)).stdout
    return json.loads(said)


def peer_times(said):
    """The times of the peer's output without its warm-up; None if there are none."""
    times = re.search(r"times \[([^\]]*)\]", said)
    if times is None:
        return None
    return [float(second) for second in times.group(1).split(",")][PEER_WARM_UP:]


def run_pytorch(args, shape):
    command = [args.peer_python, args.peer, "--model", shape["model"], "--task", shape["task"]]
    command += ["--bs", str(shape["batch"]), "--seq", str(shape["length"])]
    command += ["--steps", str(args.steps), "--threads", str(args.threads)]
    command += ["--dtype", "fp32" if "isa" in shape else "bf16"]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True,
        env=support.with_tcmalloc(environment(shape))
    ).stdout
    times = peer_times(said)
    if not times:
        sys.exit(f"{args.peer} printed no times:\n{said}")
    return times


def side(seconds, shape, operations, peak):
    median = statistics.median(seconds)
    return {
        "seconds": seconds,
        "median_seconds": median,
        "examples_per_second": shape["batch"] / median,
        "gflops": operations / median,
        "share_of_peak": operations / median / peak,
    }


def measure(args, shape):
    """The figures of a row. Alternates the two programs `turns` times, so that system noise affects
    both; without a peer runs only the worker."""
    reports, tilewright_seconds, pytorch_seconds = [], [], []
    for _ in range(args.turns):
        reports.append(run_tilewright(args, shape))
        tilewright_seconds += reports[-1]["seconds"]
        if args.peer:
            pytorch_seconds += run_pytorch(args, shape)
    report = reports[0]
    # GFLOP/s of both by the formula of worker/nn/flops.h, derived from the report's median.
    operations = report["gflops"] * report["median_seconds"]
    peak = statistics.median(r["peak_gflops"] for r in reports)
    figures = {"isa": report["isa"], "peak_gflops": peak}
    figures["tilewright"] = side(tilewright_seconds, shape, operations, peak)
    if args.peer:
        figures["pytorch"] = side(pytorch_seconds, shape, operations, peak)
        figures["speed_up"] = (
            figures["pytorch"]["median_seconds"] / figures["tilewright"]["median_seconds"]
        )
    return figures


def missing_peer(args):
    """Why PyTorch cannot be measured; "" if it can."""
    if not args.peer or not os.path.exists(args.peer):
        return f"no script {args.peer}"
    return support.missing_pytorch(args.peer_python)


def peer_versions(args):
    code = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    said = subprocess.run(
        [args.peer_python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return {"torch": said[0], "transformers": said[1], "allocator": support.tcmalloc().name}


def run(args, commit, shapes):
    """Measures the shapes that this commit has not measured, or all of them with --again."""
    results = Results("step", commit, peer_versions(args) if args.peer else {})
    for shape in shapes:
        dtype = f"fp32 {shape['isa']}" if "isa" in shape else "bf16"
        key = {**{name: shape[name] for name in ("model", "task", "batch", "length")},
               "threads": args.threads, "dtype": dtype, "peer": "pytorch" if args.peer else "none"}
        if results.has(key) and not args.again:
            continue
        row = results.put(key, measure(args, shape))
        print(f"step: {shape}: {row['tilewright']['median_seconds']:.3f} s", file=sys.stderr)


def add_arguments(parser):
    parser.add_argument("--peer", default="../shared/peers/torch_step.py",
                        help="the PyTorch script")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps per turn")
    parser.add_argument("--again", action="store_true",
                        help="measure rows again that this commit has measured")
    parser.add_argument("--allow-dirty", action="store_true",
                        help="measure a tree with uncommitted changes and mark the rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--shapes", nargs="+", type=parse_shape,
                        default=[parse_shape(shape) for shape in SHAPES],
                        help=SHAPE)
    parser.add_argument("--threads", type=int, default=2)
    add_arguments(parser)
    args = parser.parse_args()
    if args.turns * args.steps < 5:
        print("fewer than five steps per program: a trial, not a measurement", file=sys.stderr)
    if reason := missing_peer(args):
        sys.exit(f"PyTorch cannot be measured: {reason}")
    run(args, commit_of(args.worker, args.allow_dirty), args.shapes)


if __name__ == "__main__":
    main()
