"""Measures the cost of --exact: alternating runs with and without it, for 1 to 4 processes.

    python bench/exactness.py --worker build/bin/tilewright-worker \
        --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

Every run trains 40 steps of 32 MRPC examples. The result is train_runtime of train_results.json,
which excludes start-up, evaluation and saving. Writes bench/results/exactness_processes-CPU.json and prints a
table. Run it on an idle machine with at least one core per process.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import support
from results import commit_of

BATCH = 32
EXAMPLES = 40 * BATCH


def seconds(args, processes, exact):
    threads = max(1, os.cpu_count() // processes)
    with tempfile.TemporaryDirectory() as folder:
        flags = support.flags_of(
            {
                "task_name": "mrpc",
                "model_name_or_path": args.model,
                "data_dir": args.data,
                "output_dir": f"{folder}/out",
                "per_device_train_batch_size": BATCH // args.nominal,
                "nominal_workers": args.nominal,
                "max_workers": args.nominal,
                "max_train_samples": EXAMPLES,
                "num_train_epochs": 1,
                "save_strategy": "no",
                "do_eval": False,
                "threads": threads,
                "exact": exact,
            }
        )
        command = [args.worker, "train", *flags]
        if processes > 1:
            command = [args.worker, "agent", "--nproc_per_node", str(processes), "--", "train",
                       *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        return support.read_json(f"{folder}/out/train_results.json")["train_runtime"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="directory with the MRPC files")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--nominal", type=int, default=4, help="maximum number of workers")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path,
                        default=support.results_file("exactness_processes"))
    args = parser.parse_args()
    commit_of(args.worker, allow_dirty=False)

    rows = []
    for processes in args.processes:
        runs = {"exact": [], "plain": []}
        for _ in range(args.turns):
            runs["exact"].append(seconds(args, processes, True))
            runs["plain"].append(seconds(args, processes, False))
        exact, plain = (statistics.median(runs[name]) for name in ("exact", "plain"))
        # Median of the ratios per turn: a temporary slowdown affects both runs of a turn.
        ratios = [a / b for a, b in zip(runs["exact"], runs["plain"])]
        rows.append({"processes": processes, "threads": max(1, os.cpu_count() // processes),
                     "exact_seconds": runs["exact"], "plain_seconds": runs["plain"],
                     "exact_median": exact, "plain_median": plain,
                     "median_ratio": statistics.median(ratios)})
        print(f"{processes} processes: {exact:.2f} s against {plain:.2f} s", file=sys.stderr)
    support.write_json(
        args.out,
        {
            "what": f"MRPC, MiniLM, bf16, {EXAMPLES // BATCH} steps of {BATCH}, dropout on",
            "cpu": support.cpu_name(),
            "version": support.worker_version(args.worker),
            "rows": rows,
        },
    )
    print("| processes x threads | exact s | not exact s | cost |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {row['processes']} x {row['threads']} | {row['exact_median']:.2f} "
              f"| {row['plain_median']:.2f} | {100 * (row['median_ratio'] - 1):+.1f} % |")


if __name__ == "__main__":
    main()
