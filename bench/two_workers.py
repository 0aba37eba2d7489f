"""Compares two workers of one core with one worker of two cores: steps of BERT-base question answering, 12 x 384.

    python bench/two_workers.py --worker build/bin/tilewright-worker --vocabulary .cache/models/all-minilm-l6-v2/vocab.txt \
        --data ../shared/data/squad/train-v1.1.json

The two workers exchange gradients through shared memory, and between two network namespaces on a link of 10 Gbit/s in both
directions (needs root, iproute2). The variants take turns. The weights are random. Writes bench/results/two_workers-CPU.json
and prints a table. Run it on an idle machine with two cores.
"""

import argparse
import datetime
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import random_model
import support
from emulated_link import ADDRESSES, shaped_link
from results import commit_of

LENGTH, BATCH, SKIPPED_STEPS = 384, 12, 2
PORT = 29400
STEP = re.compile(r"(\d{4}-\d\d-\d\dT[0-9:.]+) info step (\d+)/")
TRAINED = re.compile(r" info trained: .*(exchange .*)")


class Variants:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.model = folder / "model"
        random_model.write_model(self.model, args.vocabulary)
        self.key = support.write_job_key(folder / "key")

    def flags(self, batch):
        return support.flags_of({
            "task_name": "squad", "model_name_or_path": self.model, "train_file": self.args.data,
            "max_train_samples": 400, "do_train": True, "max_seq_length": LENGTH,
            "pad_to_max_length": True, "per_device_train_batch_size": batch,
            "max_steps": self.args.steps, "save_strategy": "no", "logging_steps": 1,
            "overwrite_output_dir": True, "output_dir": self.folder / "out"})

    def one(self):
        return self.steps([[self.args.worker, "train", *self.flags(BATCH), "--threads=2"]])

    def shared_memory(self):
        return self.steps([[self.args.worker, "agent", "--nproc_per_node", "2", "--", "train",
                            *self.flags(BATCH // 2)]])

    def network(self):
        with shaped_link("10gbit") as namespaces:
            return self.steps([
                ["ip", "netns", "exec", name, "taskset", "-c", str(i), self.args.worker, "agent",
                 "--nnodes", "2", "--nproc_per_node", "1", "--node_rank", str(i),
                 "--master_addr", ADDRESSES[0], "--master_port", str(PORT), "--rdzv_key_file",
                 self.key, "--", "train", *self.flags(BATCH // 2), "--threads=1"]
                for i, name in enumerate(namespaces)])

    def steps(self, commands):
        """The median seconds of a step, and what the log says of the exchange."""
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) for command in commands]
        outputs = [process.communicate(timeout=900)[0] for process in processes]
        if any(process.returncode for process in processes):
            sys.exit("\n".join(output[-3000:] for output in outputs))
        times = [datetime.datetime.fromisoformat(found[1]).timestamp()
                 for line in "".join(outputs).splitlines() if (found := STEP.search(line))]
        trained = TRAINED.search("".join(outputs))
        gaps = [b - a for a, b in zip(times, times[1:])][SKIPPED_STEPS - 1:]
        return statistics.median(gaps), trained[1] if trained else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    path = lambda text: pathlib.Path(text).resolve()
    parser.add_argument("--worker", type=path, required=True)
    parser.add_argument("--vocabulary", type=path, required=True)
    parser.add_argument("--data", type=path, required=True, help="a file of SQuAD")
    parser.add_argument("--out", default=support.results_file("two_workers"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    commit_of(args.worker, allow_dirty=False)
    names = ["one", "shared_memory"] + (["network"] if os.geteuid() == 0 else [])
    seconds, exchange = {name: [] for name in names}, {}
    with tempfile.TemporaryDirectory() as folder:
        variants = Variants(args, pathlib.Path(folder))
        for _ in range(args.turns):
            for name in names:
                step, exchange[name] = getattr(variants, name)()
                seconds[name].append(round(step, 4))
                print(f"{name}: {step:.3f} s  {exchange[name]}", file=sys.stderr)
    rows = {name: {"step_seconds": seconds[name], "exchange": exchange[name],
                   "efficiency": round(statistics.median(
                       one / two for one, two in zip(seconds["one"], seconds[name])), 4)}
            for name in names}
    support.write_json(args.out, {"what": f"BERT-base question answering, {BATCH} x {LENGTH}",
                                  "cpu": support.cpu_name(),
                                  "version": support.worker_version(args.worker), "rows": rows})
    print("| workers | step, median | efficiency | exchange |\n" + "|---" * 4 + "|")
    for name, row in rows.items():
        print(f"| {name} | {statistics.median(row['step_seconds']):.3f} s "
              f"| {100 * row['efficiency']:.1f} % | {row['exchange']} |")


if __name__ == "__main__":
    main()
