"""Trains MRPC under faults: workers killed at random and in each phase of a step, of joining, of the
transfer of the state and of writing a checkpoint; frozen, drained, added, removed; the coordinator
stopped and killed. Compares the SHA-256 of each model.safetensors with that of undisturbed trainings
with 1 to 4 workers. Exit code 1 if they differ or a loss costs more than one step.

    python bench/elastic_report.py --worker build/bin/tilewright-worker --tool build/bin/tilewright \
        --model .cache/models/all-minilm-l6-v2 --data GLUE/MRPC

Writes bench/results/elastic-CPU.json and prints tables. Needs only Python and Linux.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import support

GLOBAL_BATCH = 32  # two nominal workers with 16 examples each
MAX_WORKERS = 4
TIMEOUT = 900  # seconds of one training

# Points of worker/train/faults.h. Each kill takes two membership epochs: the survivor continues
# alone, and the replacement joins; so faults are in epochs 1, 3, 5, ...
PHASES = [
    ("step.begin", 1),
    ("step.after_backward", 0),
    ("reduce_scatter.before_send", 1),
    ("reduce_scatter.after_send", 0),
    ("all_gather.before_send", 1),
    ("bucket.done", 0),
    ("step.after_exchange", 1),
    ("step.after_update", 0),
    ("epoch.connect", 1),
    ("epoch.begin", 0),
    ("state.agreed", 1),
    ("state.transfer", 1),
    ("state.transfer", 0),
    ("state.restored", 1),
    ("checkpoint.begin", 0),
    ("checkpoint.before_rename", 0),
]

JOB = """apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {{name: elastic}}
spec:
  elasticPolicy: {{minReplicas: 1, maxReplicas: {max_workers}, maxRestarts: 1000}}
  trainer:
    task: mrpc
    model: models:.
    data: data:.
    output: output:out
    per_device_train_batch_size: 16
    learning_rate: 1e-4
    num_train_epochs: {epochs}
    save_steps: {save_steps}
    logging_steps: 1
    do_eval: false
  worker:
    replicas: {replicas}
    image: tilewright-worker
    resources: {{cpu: 1}}
  volumes:
    - {{name: models, local: {model}}}
    - {{name: data, local: {data}}}
    - {{name: output, local: .}}
"""

STEP = re.compile(r"^(\S+) info step (\d+)/(\d+) ")
CONTINUED = re.compile(
    r"^(\S+) info (recovered|resized): (.*); \d+ workers? continues? after step (\d+) in ([0-9.]+) s "
    r"\(join ([0-9.]+), connect ([0-9.]+), agree ([0-9.]+), state ([0-9.]+) s(.*)\)$"
)
RESUMED = re.compile(r" info resuming from ")


def seconds_of(stamp):
    return datetime.datetime.fromisoformat(stamp.rstrip("Z") + "+00:00").timestamp()


def world_after(line):
    """The workers that a line of the log reports; 0 if it reports none."""
    continued = re.search(r"; (\d+) workers? continues? after", line)
    joined = re.search(r"membership epoch \d+: rank \d+ of (\d+)", line)
    return int((continued or joined or [0, 0])[1])


class Up:
    """A training under `tilewright up` in its own folder."""

    def __init__(self, args, folder, save_steps, fault=""):
        self.args, self.folder, self.save_steps = args, pathlib.Path(folder), save_steps
        self.folder.mkdir()
        self.fault = fault
        self.write(replicas=2)
        self.start()

    def write(self, replicas):
        text = JOB.format(
            max_workers=MAX_WORKERS, epochs=self.args.epochs, save_steps=self.save_steps,
            replicas=replicas, model=json.dumps(str(self.args.model)),
            data=json.dumps(str(self.args.data)),
        )
        (self.folder / "job.yaml").write_text(text)

    def start(self):
        environment = {**os.environ}
        environment.pop("TILEWRIGHT_FAULT", None)
        if self.fault:
            environment["TILEWRIGHT_FAULT"] = self.fault
        self.log = open(self.folder / "up.log", "ab")
        self.process = subprocess.Popen(
            [self.args.tool, "up", "job.yaml"], cwd=self.folder, env=environment,
            stdout=self.log, stderr=self.log,
        )

    def scale(self, replicas):
        self.write(replicas)
        self.process.send_signal(signal.SIGUSR1)

    def lines(self):
        found = []
        for path in sorted((self.folder / ".tilewright/elastic/logs").glob("*")):
            for line in path.read_text(errors="replace").splitlines():
                if re.match(r"\d{4}-\d\d-\d\dT", line):
                    found.append((line, path.name))
        return sorted(found)

    def steps(self):
        return [(seconds_of(m[1]), int(m[2]), int(m[3]))
                for line, _ in self.lines() if (m := STEP.match(line))]

    def last_step(self):
        steps = self.steps()
        return steps[-1][1] if steps else 0

    def workers(self):
        """Worker index -> PID."""
        found = {}
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in map(int, children.read_text().split()):
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if not os.readlink(f"/proc/{pid}/exe").endswith("tilewright-worker"):
                    continue
            except OSError:
                continue
            for pair in environment:
                if pair.startswith(b"TILEWRIGHT_WORKER_INDEX="):
                    found[int(pair.split(b"=")[1])] = pid
        return found

    def running(self):
        return self.process.poll() is None

    def world(self):
        """Workers that train, after the last change."""
        return next(filter(None, (world_after(line) for line, _ in reversed(self.lines()))), 0)

    def wait_until(self, condition, limit=60):
        end = time.monotonic() + limit
        while time.monotonic() < end and self.running():
            if condition():
                return True
            time.sleep(0.02)
        return False

    def finish(self):
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            sys.exit(f"{self.folder}: not finished in {TIMEOUT} s")
        if code != 0:
            sys.exit(f"`tilewright up` ended with code {code}:\n{(self.folder / 'up.log').read_text()[-4000:]}")
        return self.digest()

    def digest(self):
        return digest(self.folder / "out")

    def summary(self):
        """Continuations, checks that no step went back by more than one, and the state's own counts."""
        lines = [line for line, _ in self.lines()]
        continued = []
        for line in lines:
            if m := CONTINUED.match(line):
                noticed = re.search(r"noticed ([0-9.]+) s", m[10])
                continued.append({
                    "at": seconds_of(m[1]), "kind": m[2], "change": m[3], "step": int(m[4]),
                    "seconds": float(m[5]), "join": float(m[6]), "connect": float(m[7]),
                    "agree": float(m[8]), "state": float(m[9]),
                    "steps_lost": 1 if "runs again" in m[3] else 0,
                    "noticed": float(noticed[1]) if noticed else None,
                })
        seen, most = 0, 0
        for _, step, _ in self.steps():
            most = max(most, seen - step + 1) if step <= seen else most
            seen = max(seen, step)
        return {
            "continued": continued,
            "steps_back_at_most": most,
            "checkpoints_read": sum(1 for line in lines if RESUMED.search(line)),
        }


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def undisturbed(args, folder, workers):
    flags = support.flags_of({
        "task_name": "mrpc", "model_name_or_path": args.model, "data_dir": args.data,
        "output_dir": folder / f"plain-{workers}", "per_device_train_batch_size": 16,
        "nominal_workers": 2, "max_workers": MAX_WORKERS, "learning_rate": 1e-4,
        "num_train_epochs": args.epochs, "save_strategy": "no", "do_eval": False, "threads": 1,
    })
    command = [args.worker, "agent", "--nproc_per_node", str(workers), "--", "train", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return digest(folder / f"plain-{workers}")


def step_seconds(up, world_changes):
    """Median time of a step with the full world, away from changes."""
    steps = up.steps()
    gaps = [b[0] - a[0] for a, b in zip(steps, steps[1:]) if b[1] == a[1] + 1
            and not any(a[0] - 2 < t < b[0] + 2 for t in world_changes)]
    return statistics.median(gaps) if gaps else None


def random_kills(args, folder, rng, count):
    """SIGKILL of random workers at random times; measures the time to the next completed step."""
    up = Up(args, folder / "kills", save_steps=100000)
    kills = []
    while len(kills) < count and up.wait_until(
        lambda: up.world() == 2 and len(up.workers()) == 2 and up.last_step() >= 2, 120
    ):
        before = up.last_step()
        if not up.wait_until(lambda: up.last_step() >= before + 2, 60):
            break
        time.sleep(rng.random() * 0.6)
        index = rng.choice([0, 1])
        pid = up.workers().get(index)
        if pid is None:
            continue
        known = len(up.summary()["continued"])
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        kills.append({"worker": index, "at": begin})
        up.wait_until(lambda: len(up.summary()["continued"]) > known, 60)
    sha = up.finish()
    summary = up.summary()
    steps = up.steps()
    recovered = [c for c in summary["continued"] if c["kind"] == "recovered"]
    for kill in kills:
        one = next((c for c in recovered if c["at"] > kill["at"]), None)
        done = next((t for t, step, _ in steps if one and step == one["step"] + 1
                     and t > one["at"]), None)
        if one is None or done is None:
            continue
        kill["noticed"] = round(one["at"] - one["seconds"] - kill["at"], 3)
        kill["stall"] = round(one["at"] - kill["at"], 3)
        kill["next_step"] = round(done - kill["at"], 3)
        kill["step_alone"] = round(done - one["at"], 3)
        for name in ("join", "connect", "agree", "state", "steps_lost"):
            kill[name] = one[name]
    return sha, summary, [k for k in kills if "stall" in k], step_seconds(up, [c["at"] for c in summary["continued"]])


def phases(args, folder):
    faults = ";".join(f"{point},worker={worker},epoch={2 * i + 1}"
                      for i, (point, worker) in enumerate(PHASES))
    up = Up(args, folder / "phases", save_steps=7, fault=faults)
    sha = up.finish()
    return sha, up.summary()


def mixed(args, folder):
    """One event after another; returns what each took until the training continued."""
    up = Up(args, folder / "mixed", save_steps=20)
    events = []

    def settle(world):
        return up.wait_until(lambda: up.world() == world and len(up.workers()) >= world, 60)

    def event(name, act, world, limit=60):
        if not up.running():
            return
        known = len(up.summary()["continued"])
        begin = time.time()
        act()
        up.wait_until(lambda: len(up.summary()["continued"]) > known, limit)
        found = up.summary()["continued"][known:]
        events.append({"fault": name, "seconds": round(found[0]["at"] - begin, 3) if found else None,
                       "stall": found[0]["seconds"] if found else None,
                       "steps_lost": found[0]["steps_lost"] if found else None,
                       "change": found[0]["change"] if found else None})
        settle(world)

    settle(2)
    up.wait_until(lambda: up.last_step() >= 3)
    event("SIGTERM to a worker (drain)", lambda: os.kill(up.workers()[1], signal.SIGTERM), 2)
    event("a worker added (2 to 3)", lambda: up.scale(3), 3)
    event("a worker removed (3 to 2)", lambda: up.scale(2), 2)
    frozen = up.workers().get(0)
    event("SIGSTOP of a worker (rank 0)", lambda: os.kill(frozen, signal.SIGSTOP), 1)
    event("SIGCONT: it gets the missed steps", lambda: os.kill(frozen, signal.SIGCONT), 2)
    # The coordinator: training continues while it is stopped.
    before = up.last_step()
    up.process.send_signal(signal.SIGSTOP)
    continued = up.wait_until(lambda: up.last_step() >= before + 3, 30)
    up.process.send_signal(signal.SIGCONT)
    events.append({"fault": "SIGSTOP of the coordinator: training continues", "stall": 0 if continued else None,
                   "seconds": None, "steps_lost": 0, "change": "none" if continued else "training stopped"})
    event("SIGKILL of a worker", lambda: os.kill(up.workers()[1], signal.SIGKILL), 2)
    summary = up.summary()
    # It ends all workers: none has the state.
    begin, at = time.time(), up.last_step()
    up.process.kill()
    up.process.wait()
    up.fault = ""
    up.start()
    up.wait_until(lambda: any(t > begin + 0.5 for t, _, _ in up.steps()), 60)
    again = next((step for t, step, _ in up.steps() if t > begin + 0.5), None)
    events.append({"fault": "SIGKILL of coordinator and all workers: last checkpoint",
                   "stall": None, "seconds": round(time.time() - begin, 1),
                   "steps_lost": at - again + 1 if again else None, "change": "all lost"})
    return up.finish(), events, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    support.add_mrpc_paths(parser)
    parser.add_argument("--out", default=support.results_file("elastic"))
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", default="undisturbed,kills,phases,mixed",
                        help="the others are kept from the results file")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    result = support.read_json(args.out, {})
    result.update({
        "what": f"MRPC, {args.epochs:g} epochs of batches of {GLOBAL_BATCH}, MiniLM, "
                f"{support.data_type()}, dropout, `tilewright up`",
        "cpu": support.cpu_name(),
        "version": support.worker_version(args.worker),
    })
    runs = result.setdefault("sha256", {})
    failures = []

    def note(run, sha):
        runs[run] = sha
        print(f"{sha[:16]}  {run}", flush=True)

    def check(what, summary, checkpoints_read=0):
        if summary["steps_back_at_most"] > 1:
            failures.append(f"{what}: a loss cost {summary['steps_back_at_most']} steps")
        if summary["checkpoints_read"] > checkpoints_read:
            failures.append(f"{what}: {summary['checkpoints_read']} checkpoints were read")

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "undisturbed" in args.parts:
            for workers in range(1, MAX_WORKERS + 1):
                note(f"undisturbed, {workers} workers", undisturbed(args, folder, workers))
        if "kills" in args.parts:
            sha, summary, kills, step = random_kills(args, folder, rng, args.kills)
            note("random SIGKILLs", sha)
            check("kills", summary)
            result["kills"] = kills
            result["step_seconds"] = round(step, 3) if step else None
            result["median_stall"] = round(statistics.median(k["stall"] for k in kills), 3)
            result["median_to_next_step"] = round(
                statistics.median(k["next_step"] for k in kills), 3)
        if "phases" in args.parts:
            sha, summary = phases(args, folder)
            note("killed in each phase", sha)
            check("phases", summary)
            result["phases"] = [one for one in summary["continued"] if one["kind"] == "recovered"]
        if "mixed" in args.parts:
            sha, events, summary = mixed(args, folder)
            note("frozen, drained, added, removed, coordinator stopped and killed", sha)
            check("mixed", summary)
            result["events"] = events
    if len(set(runs.values())) != 1:
        failures.append("the SHA-256 differ")
    result["failures"] = failures
    support.write_json(args.out, result)
    print_tables(result)
    sys.exit(1 if failures else 0)


def print_tables(result):
    if kills := result.get("kills"):
        print("\n| SIGKILL of | noticed s | stall s | join | connect | agree | state "
              "| next step alone s | steps lost |\n" + "|---" * 9 + "|")
        for k in kills:
            print(f"| worker {k['worker']} | {k['noticed']} | {k['stall']} | {k['join']} "
                  f"| {k['connect']} | {k['agree']} | {k['state']} | {k['step_alone']} "
                  f"| {k['steps_lost']} |")
        print(f"\nmedian stall {result['median_stall']} s, to the next completed step "
              f"{result['median_to_next_step']} s; a step with two workers "
              f"{result['step_seconds']} s")
    if found := result.get("phases"):
        print(f"\nkilled in phases: {len(found)} recoveries, stall at most "
              f"{max(c['seconds'] for c in found)} s, steps lost at most "
              f"{max(c['steps_lost'] for c in found)} each")
    if events := result.get("events"):
        print("\n| event | training continues after s | of that stall s | steps lost | change |\n"
              + "|---" * 5 + "|")
        for e in events:
            print(f"| {e['fault']} | {e['seconds']} | {e['stall']} | {e['steps_lost']} "
                  f"| {e['change']} |")
    for failure in result["failures"]:
        print(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
