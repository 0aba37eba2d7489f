"""Trains MRPC and SQuAD under faults: workers killed at random and in each phase of a step, of joining,
of the transfer of the state and of writing a checkpoint; frozen, drained, added, removed; the
coordinator stopped and killed; on two hosts, a link with delay and loss that is cut and heals. Compares
the SHA-256 of each model.safetensors with that of undisturbed trainings with 1 to 4 workers. Measures
how long two workers wait for a third one that joins them over a link with a rate. Exit code
1 if those of a task differ, a loss costs more than one step or a part misses its target.

    python bench/elastic_report.py --worker build/bin/tilewright-worker --tool build/bin/tilewright \
        --model .cache/models/all-minilm-l6-v2 --data DATA

DATA holds glue/MRPC and squad/. Writes bench/results/elastic-CPU.json and prints tables. Needs only
Python and Linux, for the link also root and iproute2.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

import random_model
import support
from elastic_trainings import (MAX_WORKERS, STATE_SENT, TwoHosts, Up, between_steps, step_seconds,
                               undisturbed)
from emulated_link import EmulatedLink, missing, shaped_link
from results import commit_of

# The parts of the report, and of each task its directory, its flags, its parts and, in seconds beside
# an undisturbed step, the target of the median from a SIGKILL to the next completed step. Two
# nominal workers train the batch.
PARTS = ("undisturbed", "kills", "phases", "mixed", "network", "joining")
MRPC = {"task": "mrpc", "per_device_train_batch_size": 16}
SQUAD = {"task": "squad", "max_seq_length": 384, "doc_stride": 128}
TASKS = {
    "mrpc": {"what": "MRPC, 2 epochs of batches of 32", "folder": "glue/MRPC",
             "parts": ("undisturbed", "kills", "phases", "mixed"), "to_next_step": 1,
             "flags": {**MRPC, "num_train_epochs": 2}},
    "squad": {"what": "SQuAD v1.1, 100 steps of batches of 8", "folder": "squad",
              "parts": ("undisturbed", "kills", "phases", "mixed", "network"), "to_next_step": 1,
              "flags": {**SQUAD, "max_steps": 100, "per_device_train_batch_size": 4}},
    "squad-base": {"what": "SQuAD v1.1, BERT-base of random weights, 40 steps of batches of 4",
                   "folder": "squad", "parts": ("undisturbed", "kills", "joining"), "workers": (2,),
                   "to_next_step": 3, "random_model": True,
                   "flags": {**SQUAD, "max_steps": 40, "per_device_train_batch_size": 2}},
    # For CI: no target, because other programs may run.
    "mrpc-short": {"what": "MRPC, 60 steps of batches of 8", "folder": "glue/MRPC",
                   "parts": ("undisturbed", "kills", "phases"), "workers": (2,),
                   "flags": {**MRPC, "max_steps": 60, "per_device_train_batch_size": 4}},
}
DEFAULT_TASKS = ("mrpc", "squad", "squad-base")
NOTHING = "nothing"  # the change of an event after which the training did not continue
DELAY, LOSS = 0.001, 0.001  # of the link: seconds each way, share of the packets
RATES = ("10gbit", "2gbit")  # of the link over which a worker joins
LIMIT = 300  # seconds of a wait that only ends a training that hangs
COORDINATOR_STOP = 6  # seconds; members notice a lost coordinator after more

# Points of worker/train/faults.h, and the worker that is killed there; None: the first that gets there. Each
# restart of a worker delays its next one, so the workers take turns.
PHASES = [
    ("step.begin", 1),
    ("step.shard", 0),
    ("step.after_backward", 0),
    ("reduce_scatter.before_send", 2),
    ("reduce_scatter.after_send", 1),
    ("all_gather.before_send", 0),
    ("bucket.done", 2),
    ("step.after_exchange", 1),
    ("step.after_update", 0),
    ("checkpoint.begin", None),  # rank 0, as in all of them
    ("checkpoint.write", None),
    ("checkpoint.before_rename", None),
    ("checkpoint.done", None),
]
# These happen only when the members change, so a worker is killed for them: {phase: worker}.
JOIN_PHASES = {
    ("epoch.connect", 1): 2,
    ("epoch.begin", 2): 0,
    ("state.agreed", 0): 1,
    ("state.transfer", 2): 0,  # sends
    ("state.transfer", 1): 1,  # receives
    ("state.restored", 2): 2,
}


# Where it is killed: the others are in the same step and cannot complete it, so they keep the same state.
VICTIM_POINT = "all_gather.before_send"


def victim_file(file):
    return file.with_name(f"{file.name}-victim")


def random_kills(args, folder, rng, count):
    """SIGKILL of random workers at random times, in as many trainings as `count` kills take. Returns the
    digest and the summary of each training, and the kills that were measured; a training without
    any ends it."""
    trainings, kills = [], []
    while len(kills) < count:
        *training, found = training_with_kills(args, folder / f"kills-{len(trainings)}", rng,
                                               count - len(kills))
        trainings.append(training)
        kills += found
        if not found:
            break
    return trainings, kills


def kill(pid):
    """SIGKILL; a process that has just ended is left alone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_at_random(up, rng, count):
    kills = []
    while len(kills) < count and up.wait_until(
        lambda: up.world() == 2 and len(up.workers()) == 2 and up.last_step() >= 2, LIMIT
    ):
        before = up.last_step()
        if not up.wait_until(lambda: up.last_step() >= before + 2, LIMIT):
            break
        time.sleep(rng.random() * 0.6)
        index = rng.choice([0, 1])
        pid = up.workers().get(index)
        if pid is None:
            continue
        known = len(up.summary()["continued"])
        begin = time.time()
        kill(pid)
        kills.append({"worker": index, "at": begin})
        up.wait_until(lambda: len(up.summary()["continued"]) > known, LIMIT)
    return kills


def training_with_kills(args, folder, rng, count):
    """Kills until `count` or the training's end; measures the time to the next completed step. A kill
    after which no step was left is not measured."""
    with Up(args, folder, save_steps=100000) as up:
        kills = kill_at_random(up, rng, count)
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
    return sha, summary, [k for k in kills if "stall" in k]


def phases(args, folder):
    """Kills in each phase, in as many trainings as that takes. Returns the digest and the summary of each
    training, and the phases that were not hit."""
    trainings, missed, left = [], [], [*JOIN_PHASES, *PHASES]
    while left:
        *training, tried, not_hit = training_with_phases(args, folder / f"phases-{len(trainings)}", left)
        trainings.append(training)
        missed += not_hit
        if tried == 0:
            return trainings, missed + [point for point, _ in left]
        left = left[tried:]
    return trainings, missed


def training_with_phases(args, folder, points):
    """Kills in one phase after another while three workers train: another one has the state too. A file
    arms the fault. Returns the digest, the summary, how many points were tried before the training
    ended, and those of them that were not hit."""
    files = [folder.with_name(f"{folder.name}-armed-{number}") for number in range(len(points))]
    faults = ";".join(f"{point}{'' if worker is None else f',worker={worker}'},once={file}"
                      for (point, worker), file in zip(points, files, strict=True))
    faults += "".join(f";{VICTIM_POINT},worker={victim},once={victim_file(file)}"
                      for file, victim in zip(files, map(JOIN_PHASES.get, points), strict=True)
                      if victim is not None)
    with Up(args, folder, save_steps=7, fault=faults) as up:
        tried, missed = kill_in_phases(up, points, files)
        return up.finish(), up.summary(), tried, missed


def kill_at_point(up, file, has_victim):
    """Arms a point with `file`, and the death of its victim, if it has one. Waits until a worker is
    killed at the point and the others continue. They notice the loss later: until then the log names
    all workers. Returns whether a worker got to the point."""
    continued = lambda: len(up.summary()["continued"])
    before = continued()
    file.touch()
    if has_victim:
        victim_file(file).touch()

    def hit():
        nonlocal before
        now = continued()
        if armed := file.exists():
            before = now
        return not armed

    if not up.wait_until(hit, LIMIT) and file.exists():
        return False
    up.wait_until(lambda: continued() > before, LIMIT)
    return True


def kill_in_phases(up, points, files):
    up.wait_until(lambda: up.world() == 2 and up.last_step() >= 1, LIMIT)
    up.scale(3)
    tried, missed = 0, []
    for (point, worker), file in zip(points, files, strict=True):
        # Whichever worker is killed, another has the state. One that has failed often is restarted late.
        if not up.wait_until(lambda: up.world() == 3 and len(up.workers()) == 3, LIMIT):
            break
        before = up.last_step()
        up.wait_until(lambda: up.last_step() > before and up.all_have_state(), LIMIT)
        hit = kill_at_point(up, file, (point, worker) in JOIN_PHASES)
        if not hit and not up.running():
            break
        tried += 1
        if not hit:
            missed.append(point)
            file.unlink(missing_ok=True)
    return tried, missed


def caused_by(fault, begin, continued):
    """What a fault at `begin` took; `continued`: the continuations that it caused."""
    if not continued:
        return {"fault": fault, "seconds": None, "noticed": None, "stall": None, "steps_lost": None,
                "change": NOTHING}
    last = continued[-1]
    seconds = last["at"] - begin
    return {"fault": fault, "seconds": round(seconds, 3),
            "noticed": round(seconds - last["seconds"], 3), "stall": last["seconds"],
            "steps_lost": max(c["steps_lost"] for c in continued), "change": last["change"]}


def mixed(args, folder):
    """One event after another; returns what each took until the training continued."""
    with Up(args, folder / "mixed", save_steps=20) as up:
        return mixed_events(up)


def mixed_events(up):
    events = []

    def settle(world):
        """Waits until `world` workers train."""
        def settled():
            continued = up.summary()["continued"]
            trains = continued[-1]["workers"] if continued else up.world()
            return trains == world and len(up.workers()) >= world
        return up.wait_until(settled, 60)

    def event(name, act, change, world):
        """`change`: of the continuation that `act` causes; `world`: the workers at the end."""
        if not up.running():
            return
        known = len(up.summary()["continued"])
        begin = time.time()
        act()
        caused = lambda: [c for c in up.summary()["continued"][known:] if change in c["change"]]
        up.wait_until(caused, 60)
        found = caused()
        events.append(caused_by(name, begin, found[:1]))
        settle(world)

    settle(2)
    up.wait_until(lambda: up.last_step() >= 3)
    event("SIGTERM to a worker (drain)", lambda: os.kill(up.workers()[1], signal.SIGTERM),
          "worker 1 left", 2)
    event("a worker added (2 to 3)", lambda: up.scale(3), "worker 2 joined", 3)
    event("a worker removed (3 to 2)", lambda: up.scale(2), "worker 2 left", 2)
    frozen = up.workers().get(0)
    event("SIGSTOP of a worker (rank 0)", lambda: os.kill(frozen, signal.SIGSTOP),
          "worker 0 lost", 1)
    event("SIGCONT: it gets the missed steps", lambda: os.kill(frozen, signal.SIGCONT),
          "worker 0 joined", 2)
    # The coordinator: training continues while it is stopped. It writes the logs, so they are read later.
    begin, before = time.time(), up.last_step()
    up.process.send_signal(signal.SIGSTOP)
    time.sleep(COORDINATOR_STOP)
    up.process.send_signal(signal.SIGCONT)
    end = time.time()
    up.wait_until(lambda: any(t > end for t, _, _ in up.steps()))
    done = sum(1 for t, step, _ in up.steps() if begin < t < end and step > before)
    events.append({"fault": f"SIGSTOP of the coordinator for {COORDINATOR_STOP} s",
                   "stall": 0 if done > 2 else None, "seconds": None, "noticed": None,
                   "steps_lost": 0,
                   "change": f"{done} steps were trained meanwhile" if done > 2 else NOTHING})
    event("SIGKILL of a worker", lambda: os.kill(up.workers()[1], signal.SIGKILL), "worker 1 lost", 2)
    summary = up.summary()
    first_step = up.steps()[0][0]
    # It ends all workers: none has the state. The next start begins new logs.
    begin, at = time.time(), up.last_step()
    up.process.kill()
    up.process.wait()
    up.fault = ""
    up.start()
    up.wait_until(lambda: any(t > begin + 0.5 for t, _, _ in up.steps()), 60)
    again = next((step for t, step, _ in up.steps() if t > begin + 0.5), None)
    events.append({"fault": "SIGKILL of coordinator and all workers: last checkpoint",
                   "stall": None, "seconds": round(time.time() - begin, 1), "noticed": None,
                   "steps_lost": at - again + 1 if again else None, "change": "all lost"})
    sha = up.finish()
    summary["seconds"] = round(up.steps()[-1][0] - first_step, 1)
    return sha, events, summary


def network(args, folder):
    """Two hosts whose link has delay and loss, is cut until the first continues alone, and heals."""
    events = []
    with EmulatedLink(DELAY, LOSS) as link:
        with TwoHosts(args, folder / "network") as hosts:
            hosts.start()
            hosts.start()
            hosts.wait_until(lambda: hosts.world() == 2 and hosts.last_step() >= 10, 300)
            for name, cut, world in (("the link is cut: host 0 continues alone", True, 1),
                                     ("the link heals: host 1 joins again", False, 2)):
                begin, step = time.time(), hosts.last_step()
                link.cut = cut
                known = len(hosts.summary()["continued"])
                hosts.wait_until(lambda: hosts.world() == world
                                 and len(hosts.summary()["continued"]) > known, 120)
                found = hosts.summary()["continued"][known:]
                events.append(caused_by(name, begin, found))
                hosts.wait_until(lambda: hosts.last_step() >= step + 5, 60)
            sha = hosts.finish()
        summary = hosts.summary()
        return sha, events, summary, {"packets": link.sent, "lost": link.lost,
                                      "step_seconds": step_seconds(hosts.steps(), [
                                          c["at"] for c in summary["continued"]])}


def joining(args, folder, rate, exact):
    """Two workers on one host, which a third joins from the other over a link: the SHA-256, how long all
    wait, and during how many further steps the third worker gets the rest of the state."""
    flags = [] if exact else ["--exact=false"]
    with shaped_link(rate), TwoHosts(args, folder / f"joining-{rate}-{exact}", flags) as hosts:
        hosts.start(processes=2)
        hosts.wait_until(lambda: hosts.world() == 2 and hosts.last_step() >= 5, LIMIT)
        hosts.start(processes=1)
        joined = hosts.wait_until(lambda: hosts.world() == 3, LIMIT)
        sha = hosts.finish() if joined or not hosts.running() else ""
        summary = hosts.summary()
        continued = [c for c in summary["continued"] if c["workers"] == 3]
        sent = next(filter(None, map(STATE_SENT.search, hosts.lines())), None)
        return sha, {
            "rate": rate, "exact": exact, "stall": continued[0]["seconds"] if continued else None,
            "state": continued[0]["state"] if continued else None,
            "further_steps": int(sent[2] or sent[1]) - int(sent[1]) + 1 if sent else 0,
        }, summary


def undisturbed_run(workers):
    return f"undisturbed, {workers} workers"


class Report:
    """The parts of the report for one task. Each part returns its failures."""

    def __init__(self, args, task, result):
        self.args, self.task, self.result = args, task, result
        self.runs = result.setdefault("sha256", {})
        self.seconds = result.setdefault("seconds", {})
        self.failures = result.setdefault("failures", {})  # by part

    def note(self, run, sha, seconds):
        self.runs[run], self.seconds[run] = sha, seconds
        print(f"{sha[:16]}  {self.task}: {run}", flush=True)

    def note_disturbed(self, run, trainings, events=()):
        """`trainings`: (SHA-256, summary) of each; notes their mean duration. Returns the failures."""
        summaries = [summary for _, summary in trainings]
        self.note(run, " ".join(sorted({sha for sha, _ in trainings})),
                  round(statistics.mean(summary["seconds"] for summary in summaries), 1))
        failures = []
        if (steps := max(summary["steps_back_at_most"] for summary in summaries)) > 1:
            failures.append(f"{run}: a loss cost {steps} steps")
        if (read := sum(summary["checkpoints_read"] for summary in summaries)) > 0:
            failures.append(f"{run}: {read} checkpoints were read")
        return failures + [f"{event['fault']}: the training did not continue" for event in events
                           if event["change"] == NOTHING]

    def run(self, parts, folder):
        for part in parts:
            self.failures[part] = getattr(self, part)(folder)
            self.result.setdefault("versions", {})[part] = support.worker_version(self.args.worker)
        self.failures["hashes"] = ["the SHA-256 differ"] if len(set(self.runs.values())) != 1 else []

    def undisturbed(self, folder):
        for workers in TASKS[self.task].get("workers", range(1, MAX_WORKERS + 1)):
            sha, steps = undisturbed(self.args, folder, workers)
            self.note(undisturbed_run(workers), sha, between_steps(steps))
            if workers == 2:
                self.result["step_seconds"] = step_seconds(steps)
        return []

    def kills(self, folder):
        rng = random.Random(self.args.seed)
        trainings, kills = random_kills(self.args, folder, rng, self.args.kills)
        median = lambda name: round(statistics.median(k[name] for k in kills), 3) if kills else None
        self.result.update({"kills": kills, "median_stall": median("stall"),
                            "median_to_next_step": median("next_step")})
        return self.note_disturbed("random SIGKILLs", trainings) + self.missed_targets()

    def missed_targets(self):
        """Those of the kills."""
        failures = []
        if len(self.result["kills"]) < self.args.kills:
            failures.append(f"kills: {len(self.result['kills'])} of {self.args.kills} were measured")
        target, seconds = TASKS[self.task].get("to_next_step"), self.result["median_to_next_step"]
        step = self.result.get("step_seconds") or 0
        if target and seconds is not None and seconds - step > target:
            failures.append(f"kills: the next step ended after {seconds} s, the target is {target} s "
                            f"beside a step of {step} s")
        return failures

    def phases(self, folder):
        trainings, missed = phases(self.args, folder)
        self.result["phases"] = [one for _, summary in trainings for one in summary["continued"]
                                 if one["kind"] == "recovered"]
        return self.note_disturbed("killed in each phase", trainings) + [
            f"phases: {phase} was not hit" for phase in missed]

    def mixed(self, folder):
        sha, self.result["events"], summary = mixed(self.args, folder)
        return self.note_disturbed(
            "frozen, drained, added, removed, coordinator stopped and killed", [(sha, summary)],
            self.result["events"])

    def network(self, folder):
        if reason := missing(tun=True):
            print(f"{self.task}: the link is left out: {reason}", file=sys.stderr)
            return []
        sha, self.result["network"], summary, self.result["link"] = network(self.args, folder)
        return self.note_disturbed("two hosts, a link with delay and loss, cut and healed",
                                   [(sha, summary)], self.result["network"])

    def joining(self, folder):
        if reason := missing(tun=False):
            print(f"{self.task}: the link is left out: {reason}", file=sys.stderr)
            return []
        self.result["joining"], trainings, failures = [], [], []
        for rate, exact in (*((rate, True) for rate in RATES), (RATES[0], False)):
            sha, joined, summary = joining(self.args, folder, rate, exact)
            self.result["joining"].append(joined)
            if joined["stall"] is None:
                failures.append(f"joining: no worker joined over {rate}")
            elif exact:
                trainings.append((sha, summary))
        if self.result["joining"][len(RATES) - 1]["further_steps"] < 2:
            failures.append(f"joining: over {RATES[-1]} the state arrived within a step")
        return failures + (self.note_disturbed("a worker joins over a link", trainings)
                           if trainings else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    support.add_paths(parser, "directory with glue/MRPC and squad/")
    parser.add_argument("--out", default=support.results_file("elastic"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=DEFAULT_TASKS)
    parser.add_argument("--kills", type=int, default=20, help="of each task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS,
                        help="the others are kept from the results file")
    parser.add_argument("--allow-dirty", action="store_true",
                        help="measure a tree with uncommitted changes and mark the results")
    args = parser.parse_args()
    commit_of(args.worker, args.allow_dirty)
    results = support.read_json(args.out, {})
    results["cpu"] = support.cpu_name()
    failed = False
    for name in args.tasks:
        task = TASKS[name]
        result = results.setdefault("tasks", {}).setdefault(name, {})
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            model = "MiniLM" if not task.get("random_model") else ""
            result["what"] = ", ".join(filter(None, (task["what"], model, support.data_type(),
                                                     "dropout")))
            given = {**vars(args), "flags": task["flags"], "data": args.data / task["folder"]}
            if task.get("random_model"):
                given["model"] = folder / "model"
                random_model.write_model(given["model"], args.model / "vocab.txt")
            Report(argparse.Namespace(**given), name, result).run(
                [part for part in args.parts if part in task.get("parts", PARTS)], folder)
        support.write_json(args.out, results)
        print_tables(result)
        failed |= any(result["failures"].values())
    sys.exit(failed)


def print_tables(result):
    print(f"\n{result['what']}")
    if kills := result.get("kills"):
        print("\n| SIGKILL of | noticed s | stall s | join | connect | agree | state "
              "| next step alone s | steps lost |\n" + "|---" * 9 + "|")
        for k in kills:
            print(f"| worker {k['worker']} | {k['noticed']} | {k['stall']} | {k['join']} "
                  f"| {k['connect']} | {k['agree']} | {k['state']} | {k['step_alone']} "
                  f"| {k['steps_lost']} |")
        print(f"\nmedian stall {result['median_stall']} s, to the next completed step "
              f"{result['median_to_next_step']} s; an undisturbed step with two workers "
              f"{result.get('step_seconds')} s")
    if found := result.get("phases"):
        print(f"\nkilled in phases: {len(found)} recoveries, stall at most "
              f"{max(c['seconds'] for c in found)} s, steps lost at most "
              f"{max(c['steps_lost'] for c in found)} each")
    if link := result.get("link"):
        print(f"\nlink: {1e3 * DELAY:g} ms each way, {link['lost']} of {link['packets']} packets lost; "
              f"a step takes {link['step_seconds']} s")
    for joined in result.get("joining", []):
        sums = "exact sums" if joined["exact"] else "--exact=false"
        print(f"\na third worker over {joined['rate']}, {sums}: all wait for {joined['stall']} s, of it "
              f"{joined['state']} s for the state; its rest arrives during {joined['further_steps']} steps")
    if events := result.get("events", []) + result.get("network", []):
        print("\n| event | noticed s | stall s | training continues after s | steps lost | change |\n"
              + "|---" * 6 + "|")
        for e in events:
            print(f"| {e['fault']} | {e['noticed']} | {e['stall']} | {e['seconds']} "
                  f"| {e['steps_lost']} | {e['change']} |")
    plain = result.get("seconds", {}).get(undisturbed_run(2))
    if plain:
        print("\n| training | first to last step s | relative to two undisturbed workers |\n"
              + "|---" * 3 + "|")
        for run, seconds in result["seconds"].items():
            print(f"| {run} | {seconds} | {seconds / plain:.2f} |")
    for failure in itertools.chain(*result["failures"].values()):
        print(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
