"""Kills and freezes workers of a torchrun job at random times: what elastic_report.py does to Tilewright's.

    python bench/torchrun_faults.py --python VENV/bin/python --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

VENV has torch and transformers; torchrun starts two workers with torchrun_mrpc.py and a checkpoint every 50 steps. Writes
bench/results/torchrun_faults-CPU.json and prints tables. Run it on an idle machine with two cores.
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


def descendants(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in task.read_text().split():
                found += descendants(int(child))
    return found


def steps_of(events):
    return [e for e in events if e["event"] == "step"]


class Job:
    """A torchrun job that continues from the last checkpoint in its folder, and what its log says."""

    def __init__(self, args, folder):
        self.args, self.folder, self.log = args, folder, folder / "log.jsonl"
        self.start()

    def start(self):
        with open(self.folder / "err.log", "ab") as err:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=err,
                                            env={**os.environ, "OMP_NUM_THREADS": "1"})

    def command(self):
        args = self.args
        return [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                "--max_restarts", "1000", HERE / "torchrun_mrpc.py", "--model", args.model,
                "--data", args.data, "--output", self.folder, "--events", self.log,
                "--epochs", str(args.epochs), "--save-steps", str(args.save_steps)]

    def stop(self):
        """With the workers, which have sessions of their own and may hang."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(TIMEOUT)

    def fail(self, message):
        self.stop()
        sys.exit(f"{message}:\n{(self.folder / 'err.log').read_text()[-2000:]}")

    def events(self):
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def highest_step(self):
        return max((e["step"] for e in steps_of(self.events())), default=0)

    def wait_until(self, condition):
        return support.wait_until(condition, TIMEOUT, lambda: self.process.poll() is None)

    def wait_for_event(self, event, begin, least):
        """The first one after `begin` with at least this step; None without one in TIMEOUT."""
        return self.wait_until(lambda: next(
            (e for e in self.events() if e["event"] == event and e["time"] > begin
             and e["step"] >= least), None))

    def random_worker(self, rng):
        """The rank and PID of a random worker, at a random step behind the highest one so far."""
        target = self.highest_step() + 2 + rng.randrange(self.args.save_steps // 2)
        if not self.wait_until(lambda: self.highest_step() >= target):
            self.fail(f"step {target} was not reached")
        time.sleep(rng.random() * 0.6)
        rank = rng.choice([0, 1])
        return rank, [e["pid"] for e in self.events() if e["event"] == "start" and e["rank"] == rank][-1]

    def recovery(self, begin, highest):
        """The events of the restart: its start, its first step, the first new step; None where there
        is none within TIMEOUT."""
        begin += 0.05
        start = self.wait_for_event("start", begin, 0)
        step = start and self.wait_for_event("step", begin, start["step"] + 1)
        return start, step, step and self.wait_for_event("step", begin, highest + 1)

    def restart(self, highest):
        """As a person would restart a job that hangs; returns as recovery()."""
        self.stop()
        self.start()
        found = self.recovery(time.time(), highest)
        if found[-1] is None:
            self.fail("the job does not start again")
        return found


def kill_worker(job, rng):
    """SIGKILL of a random worker, and what it took."""
    rank, pid = job.random_worker(rng)
    begin = time.time()
    os.kill(pid, signal.SIGKILL)
    highest = job.highest_step()
    start, step, again = job.recovery(begin, highest)
    hung = again is None
    if hung:
        start, step, again = job.restart(highest)
    return {"rank": rank, "at_step": highest, "hung": hung, "resumed_from": start["step"],
            "steps_lost": highest - start["step"], "next_step": round(step["time"] - begin, 3),
            "progress": round(again["time"] - begin, 3)}


def freeze_worker(job, rng, seconds):
    """SIGSTOP of a random worker, after so many seconds SIGCONT, and what it took."""
    rank, pid = job.random_worker(rng)
    begin, at_step = time.time(), job.highest_step()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):  # torchrun may have replaced it
        os.kill(pid, signal.SIGCONT)
    end, highest = time.time(), job.highest_step()
    hung = job.wait_for_event("step", end, highest + 1) is None
    if hung:
        job.restart(highest)
    return {"rank": rank, "at_step": at_step, "hung": hung, **cost_of_freeze(job.events(), begin, end)}


def cost_of_freeze(events, begin, end):
    """`events`: those until a step after `end` that was not reached before. `steps_meanwhile`: steps
    that ended in the freeze; `stall`: the longest time between two new steps."""
    highest, times, meanwhile, lost = 0, [], 0, 0
    for event in sorted(events, key=lambda event: event["time"]):
        if event["event"] == "start" and event["time"] > begin:
            lost = max(lost, highest - event["step"])
        if event["event"] != "step" or event["step"] <= highest:
            continue
        highest = event["step"]
        if event["time"] <= begin:
            times = []
        times.append(event["time"])
        meanwhile += begin < event["time"] <= end
        if event["time"] > end:
            break
    return {"steps_meanwhile": meanwhile, "steps_lost": lost,
            "stall": round(max(b - a for a, b in zip(times, times[1:])), 3)}


def disturb(args, rng, folder):
    """The kills, the freezes and the median time of a step."""
    job = Job(args, folder)
    noted = lambda fault: print(fault, file=sys.stderr) or fault
    kills = [noted(kill_worker(job, rng)) for _ in range(args.kills)]
    freezes = [noted(freeze_worker(job, rng, args.freeze_seconds)) for _ in range(args.freezes)]
    job.stop()
    steps = steps_of(job.events())
    gaps = [b["time"] - a["time"] for a, b in zip(steps, steps[1:]) if b["step"] == a["step"] + 1]
    return kills, freezes, statistics.median(gaps)


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
    parser.add_argument("--freezes", type=int, default=3)
    parser.add_argument("--freeze-seconds", type=float, default=20)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills, freezes, step = disturb(args, random.Random(args.seed), pathlib.Path(folder))
    continued = [k for k in kills if not k["hung"]]
    median = lambda name, faults: statistics.median(one[name] for one in faults) if faults else None
    support.write_json(args.out, {
        "what": f"MRPC, MiniLM, batches of 32, two torchrun workers with one thread, bf16 autocast, "
                f"a checkpoint every {args.save_steps} steps, SIGKILL of a random worker, SIGSTOP of "
                f"one for {args.freeze_seconds:g} s",
        "cpu": support.cpu_name(), **versions(args.python), "step_seconds": round(step, 3),
        "median_steps_lost": median("steps_lost", kills),
        "hung": len(kills) - len(continued), "hung_after_seconds": TIMEOUT,
        "median_to_next_step": median("next_step", continued),
        "median_to_progress": median("progress", continued),
        "median_stall_of_freeze": median("stall", freezes),
        "kills": kills, "freezes": freezes})
    print_tables(kills, freezes, args.freeze_seconds)


def print_tables(kills, freezes, freeze_seconds):
    yes = lambda hung: "yes" if hung else ""
    print("| SIGKILL of | at step | resumed from | steps lost | next step after s "
          "| step not reached before after s | hung |\n" + "|---" * 7 + "|")
    for k in kills:
        print(f"| rank {k['rank']} | {k['at_step']} | {k['resumed_from']} | {k['steps_lost']} "
              f"| {k['next_step']} | {k['progress']} | {yes(k['hung'])} |")
    print(f"\n| SIGSTOP for {freeze_seconds:g} s of | at step | steps meanwhile | steps lost | stall s "
          "| hung |\n" + "|---" * 6 + "|")
    for f in freezes:
        print(f"| rank {f['rank']} | {f['at_step']} | {f['steps_meanwhile']} | {f['steps_lost']} "
              f"| {f['stall']} | {yes(f['hung'])} |")


if __name__ == "__main__":
    main()
