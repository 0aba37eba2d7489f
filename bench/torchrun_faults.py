"""Kills workers of a torchrun job at random times: what elastic_report.py does to Tilewright's.

    python bench/torchrun_faults.py --python VENV/bin/python --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

VENV has torch and transformers; torchrun starts two workers with torchrun_mrpc.py and a checkpoint every 50 steps. Writes
bench/results/torchrun_faults-CPU.json and prints a table. Run it on an idle machine with two cores.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import support

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 60  # seconds until a job that makes no progress counts as hung


def events(log):
    if not log.exists():
        return []
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_until(job, condition):
    return support.wait_until(condition, TIMEOUT, lambda: job.poll() is None)


def start_job(args, folder, log):
    return subprocess.Popen(
        [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
         "--max_restarts", "1000", HERE / "torchrun_mrpc.py", "--model", args.model,
         "--data", args.data, "--output", folder, "--events", log, "--epochs", str(args.epochs),
         "--save-steps", str(args.save_steps)],
        stdout=subprocess.DEVNULL, stderr=open(folder / "err.log", "ab"),
        env={**os.environ, "OMP_NUM_THREADS": "1"})


def descendants(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in task.read_text().split():
                found += descendants(int(child))
    return found


def stop_job(job):
    """With the workers, which have sessions of their own and may hang."""
    for pid in descendants(job.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait(TIMEOUT)


def recovery(job, log, begin, highest):
    """The events of the restart: its start, its first step, the first new step; None where there is
    none within TIMEOUT."""
    def after(event, least):
        return next((e for e in events(log) if e["event"] == event and e["time"] > begin + 0.05
                     and e["step"] >= least), None)

    start = wait_until(job, lambda: after("start", 0))
    step = start and wait_until(job, lambda: after("step", start["step"] + 1))
    return start, step, step and wait_until(job, lambda: after("step", highest + 1))


def kill_workers(args, rng, folder):
    log = folder / "log.jsonl"
    job = start_job(args, folder, log)
    kills, highest = [], 0
    while len(kills) < args.kills:
        # At a random step behind the highest one so far.
        target = highest + 2 + rng.randrange(args.save_steps // 2)
        reached = wait_until(job, lambda: [e for e in events(log) if e["event"] == "step"
                                           and e["step"] >= target])
        if not reached:
            stop_job(job)
            sys.exit(f"{len(kills)} of {args.kills} kills:\n{(folder / 'err.log').read_text()[-2000:]}")
        time.sleep(rng.random() * 0.6)
        found = events(log)
        rank = rng.choice([0, 1])
        pid = [e["pid"] for e in found if e["event"] == "start" and e["rank"] == rank][-1]
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        highest = max(e["step"] for e in events(log) if e["event"] == "step")
        start, step, again = recovery(job, log, begin, highest)
        kills.append({"rank": rank, "at_step": highest, "hung": again is None})
        if again is None:  # as a person would: stop it and start it again
            stop_job(job)
            job = start_job(args, folder, log)
            start, step, again = recovery(job, log, time.time(), highest)
        if again is None:
            stop_job(job)
            sys.exit(f"the job does not start again:\n{(folder / 'err.log').read_text()[-2000:]}")
        kills[-1].update({"resumed_from": start["step"], "steps_lost": highest - start["step"],
                          "next_step": round(step["time"] - begin, 3),
                          "progress": round(again["time"] - begin, 3)})
        print(kills[-1], file=sys.stderr)
    stop_job(job)
    steps = [e for e in events(log) if e["event"] == "step"]
    gaps = [b["time"] - a["time"] for a, b in zip(steps, steps[1:]) if b["step"] == a["step"] + 1]
    return kills, statistics.median(gaps)


def versions(python):
    done = subprocess.run(
        [python, "-c", "import torch, transformers; print(torch.__version__, transformers.__version__)"],
        check=True, capture_output=True, text=True)
    return dict(zip(("torch", "transformers"), done.stdout.split(), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="directory of MRPC")
    parser.add_argument("--out", default=support.results_file("torchrun_faults"))
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills, step = kill_workers(args, random.Random(args.seed), pathlib.Path(folder))
    went_on = [k for k in kills if not k["hung"]]
    support.write_json(args.out, {
        "what": f"MRPC, MiniLM, batches of 32, two torchrun workers with one thread, bf16 autocast, "
                f"a checkpoint every {args.save_steps} steps, SIGKILL of a random worker",
        "cpu": support.cpu_name(), **versions(args.python), "step_seconds": round(step, 3),
        "median_steps_lost": statistics.median(k["steps_lost"] for k in kills),
        "hung": len(kills) - len(went_on), "hung_after_seconds": TIMEOUT,
        **{f"median_to_{name}": statistics.median(k[name] for k in went_on)
           for name in ("next_step", "progress") if went_on},
        "kills": kills})
    print("| SIGKILL of | at step | resumed from | steps lost | next step after s "
          "| step not reached before after s | hung |\n" + "|---" * 7 + "|")
    for k in kills:
        print(f"| rank {k['rank']} | {k['at_step']} | {k['resumed_from']} | {k['steps_lost']} "
              f"| {k['next_step']} | {k['progress']} | {'yes' if k['hung'] else ''} |")


if __name__ == "__main__":
    main()
