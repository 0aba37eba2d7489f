"""Trains MRPC in bf16 with dropout, with different numbers of threads and processes and with killed
processes, and compares the SHA-256 of each model.safetensors. Exit code 1 if they differ.

    python bench/weights_hash.py --worker build/bin/tilewright-worker --tool build/bin/tilewright \
        --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

Writes bench/results/weights_hash-CPU.json and prints a table.
"""

import argparse
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import support
from results import commit_of

PER_DEVICE = 16
SAVE_STEPS = 40
LEARNING_RATE = 1e-4
KILLED_AND_RESUMED = "step.after_update@70"
KILLED_UNDER_UP = "step.after_backward@60,worker=1"


class Runs:
    """The training runs, each with its own output directory below `folder`."""

    def __init__(self, args, folder):
        self.args = args
        self.folder = pathlib.Path(folder)

    def flags(self, output, **more):
        return support.flags_of(
            {
                "task_name": "mrpc",
                "model_name_or_path": self.args.model,
                "data_dir": self.args.data,
                "output_dir": self.folder / output,
                "per_device_train_batch_size": PER_DEVICE,
                "nominal_workers": 2,
                "max_workers": 3,
                "learning_rate": LEARNING_RATE,
                "num_train_epochs": 1,
                "save_steps": SAVE_STEPS,
                "do_eval": False,
                **more,
            }
        )

    def call(self, command, fault="", expected=0):
        environment = {**os.environ, "TILEWRIGHT_FAULT": fault}
        if not fault:
            del environment["TILEWRIGHT_FAULT"]
        with open(self.folder / "log", "wb+") as log:
            code = subprocess.run(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log
            ).returncode
            if code != expected:
                log.seek(0)
                sys.exit(f"{command}: exit code {code}, expected {expected}\n{log.read().decode()}")
            log.seek(0)
            return log.read().decode()

    def one_process(self, output, threads, **more):
        self.call([self.args.worker, "train", *self.flags(output, threads=threads, **more)])
        return output

    def agent(self, output, processes):
        self.call(
            [self.args.worker, "agent", "--nproc_per_node", str(processes), "--", "train",
             *self.flags(output, threads=1)]
        )
        return output

    def resumed(self, output):
        command = [self.args.worker, "train", *self.flags(output, threads=2)]
        self.call(command, fault=KILLED_AND_RESUMED, expected=-signal.SIGKILL)
        said = self.call(command)
        if "resuming from" not in said:
            sys.exit(f"the killed run did not resume:\n{said}")
        return output

    def up(self, output):
        job = support.train_job(
            self.args, "weights-hash", {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3}, 2,
            output=f"output:{output}", task="mrpc", per_device_train_batch_size=PER_DEVICE,
            learning_rate=LEARNING_RATE, num_train_epochs=1, save_steps=SAVE_STEPS)
        support.write_json(self.folder / "job.yaml", job)
        said = self.call([self.args.tool, "up", "job.yaml"], fault=KILLED_UNDER_UP)
        if "SIGKILL" not in said:
            sys.exit(f"no worker was killed under up:\n{said}")
        return output

    def digest(self, output):
        return hashlib.sha256((self.folder / output / "model.safetensors").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    support.add_paths(parser, "directory of MRPC")
    parser.add_argument("--out", default=support.results_file("weights_hash"))
    parser.add_argument("--times", action="store_true", help="record run times")
    args = parser.parse_args()
    commit_of(args.worker, allow_dirty=False)

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, folder)
        for name, exact, run in (
            ("1 process, 1 thread", True, lambda: runs.one_process("one", 1)),
            ("1 process, 2 threads", True, lambda: runs.one_process("threads", 2)),
            ("2 processes", True, lambda: runs.agent("two", 2)),
            ("3 processes", True, lambda: runs.agent("three", 3)),
            ("killed by SIGKILL and resumed", True, lambda: runs.resumed("resumed")),
            ("`tilewright up`, a worker killed", True, lambda: runs.up("up")),
            ("1 process, 2 threads, --exact=false", False,
             lambda: runs.one_process("plain", 2, exact=False)),
        ):
            begin = time.monotonic()
            output = run()
            seconds = time.monotonic() - begin
            row = {"run": name, "exact": exact, "sha256": runs.digest(output)}
            if args.times:
                row["seconds"] = round(seconds, 1)
            rows.append(row)
            print(f"{name}: {row['sha256']} {seconds:.1f} s", flush=True)

    digests = {row["sha256"] for row in rows if row["exact"]}
    support.write_json(
        args.out,
        {
            "what": "MRPC, 1 epoch, bf16, dropout on, global batch 32",
            "cpu": support.cpu_name(),
            "version": support.worker_version(args.worker),
            "equal": len(digests) == 1,
            "runs": rows,
        },
    )
    print("\n| run | SHA-256 |" + (" seconds |" if args.times else ""))
    print("|---|---|" + ("---|" if args.times else ""))
    for row in rows:
        time_cell = f" {row['seconds']} |" if args.times else ""
        print(f"| {row['run']} | `{row['sha256'][:16]}…` |{time_cell}")
    sys.exit(0 if len(digests) == 1 else 1)


if __name__ == "__main__":
    main()
