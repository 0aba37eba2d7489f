#!/usr/bin/env python3
"""Trains three jobs at once, again and again, on the local cluster while a seeded schedule of faults
runs, and checks after each round that nothing is lost, wrong or left over. README.md has the rules.

    tests/chaos/soak.py --minutes 30 --seed 7      # after `make cluster`; root
    tests/chaos/soak.py --seed 7 --print_rounds 3  # only prints the schedule

Exit code 1 if an invariant is violated; then the namespace and its jobs stay.
"""

import argparse
import collections
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import cluster as local
import processes
import schedule
from cluster import CHECKOUT, OPERATOR_NAMESPACE, Failed

NAMESPACE = "tilewright-chaos"
OWNED_KINDS = "trainjobs,pods,services,secrets,networkpolicies,endpointslices"
POLL_SECONDS = 2

# Far above the expected times: a loaded machine is part of the test.
JOB_SECONDS = 1500
READY_SECONDS = 600  # a killed operator waits up to 5 min in CrashLoopBackOff
CLEANUP_SECONDS = 180

# A share of the node per job, whatever its number of workers; the node has 1900m and the operator's
# replicas request 200m.
MILLICPUS_PER_JOB = 480

# Training of each task: a run of a minute or so on two shared cores.
TRAINERS = {
    "mrpc": {"data": "work:paraphrase", "max_steps": 40, "save_steps": 5},
    "squad": {
        "data": "work:questions",
        "max_steps": 12,
        "save_steps": 3,
        "max_seq_length": 128,
        "doc_stride": 64,
    },
}

# Growth of the operator that is not explained by the sizes of its caches and its thread pools.
DESCRIPTOR_SLACK = 8
MEMORY_SLACK = 8 << 20  # bytes
BASELINE_ROUNDS = 2

# Causes of a worker's failure that the faults explain: (reason of status.failures, exit codes).
EXPECTED_EXIT_CODES = {
    137: "SIGKILL",
    143: "SIGTERM",
    144: "a lost peer or coordinator",
}
EXPECTED_REASONS = {"Deleted", "Vanished", "NodeLost", "PeerLost", "ContainerStatusUnknown"}


def manifest(job, image):
    trainer = {
        "task": job.task,
        "model": "work:model",
        "output": f"work:{job.name}",
        "per_device_train_batch_size": schedule.GLOBAL_BATCH // job.workers,
        "learning_rate": 1e-4,
        "logging_steps": 10,
        "save_total_limit": 1,
        "do_eval": False,
        **TRAINERS[job.task],
    }
    return {
        "apiVersion": "tilewright.dev/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": {
            "elasticPolicy": {
                "minReplicas": 1,
                "maxReplicas": schedule.MAX_WORKERS,
                "maxRestarts": 1000,
            },
            "trainer": trainer,
            "worker": {
                "replicas": job.workers,
                "image": image,
                "resources": {
                    "cpu": f"{MILLICPUS_PER_JOB // job.workers}m",
                    "memory": "1Gi",
                },
            },
            "volumes": [
                {
                    "name": "work",
                    "local": ".",
                    "persistentVolumeClaim": {"claimName": "work"},
                }
            ],
        },
    }


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rounded(value):
    return round(value, 1)


class Usage:
    """CPU time of processes that come and go: the last value seen of each."""

    def __init__(self):
        self.seconds = {}

    def sample(self, found):
        for process in found:
            seconds = processes.cpu_seconds(process)
            if seconds is not None:
                self.seconds[process] = seconds

    def total(self):
        return sum(self.seconds.values())


class Faults:
    """Executes the faults of one round, each on its own thread."""

    def __init__(self, soak, one, uids):
        self.soak = soak
        self.round = one
        self.uids = uids
        self.over = threading.Event()
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.applied = []  # (Fault, what it hit)
        self.skipped = collections.Counter()
        self.active = 0
        self.frozen = set()
        self.threads = [
            threading.Thread(target=self.run, args=(fault,), daemon=True)
            for fault in one.faults
        ]
        for thread in self.threads:
            thread.start()

    def end(self):
        """Starts no more faults and ends those that last."""
        self.over.set()
        for thread in self.threads:
            thread.join(120)
            if thread.is_alive():
                raise Failed("a fault did not end within 120 s")

    def run(self, fault):
        if self.over.wait(max(0, self.start + fault.at - time.monotonic())):
            return
        try:
            hit = self.apply(fault)
        except Failed as failure:  # the API server does not answer
            self.soak.log(f"{fault.kind}: {failure}")
            hit = None
        if hit is None:
            with self.lock:
                self.skipped[fault.kind] += 1

    def note(self, fault, hit):
        self.soak.log(f"round {self.round.number} {fault.at:.0f} s: {fault.kind} {hit} {fault.seconds or ''}")
        with self.lock:
            self.applied.append((fault, hit))

    # Each returns what it hit, or None if there is no target.
    def apply(self, fault):
        what, how = fault.kind.split("-", 1)
        if what in schedule.PROGRAMS:
            return self.service(fault, schedule.PROGRAMS[what], how)
        if what == "operator":
            return self.operator(fault, how)
        return self.worker(fault, how)

    def pick(self, targets, fault):
        keys = sorted(targets)
        return keys[int(fault.draw * len(keys))] if keys else None

    def worker(self, fault, how):
        name = self.round.jobs[fault.slot].name
        if how.startswith("delete"):
            index = self.pick(range(self.round.jobs[fault.slot].workers), fault)
            return self.delete(fault, f"{name}-worker-{index}", None, how)
        workers = self.soak.cluster.workers(self.uids[name])
        index = self.pick(workers, fault)
        if index is None:
            return None
        return self.signal(fault, workers[index], f"{name} worker {index}", how)

    def operator(self, fault, how):
        operators = self.soak.cluster.operators()
        leader = self.soak.leader.rsplit("_", 1)[0]
        # Mostly the leader, because the other replica has nothing to lose.
        name = leader if fault.draw < 0.8 and leader in operators else self.pick(operators, fault)
        if name is None:
            return None
        if how == "delete":
            return self.delete(fault, name, OPERATOR_NAMESPACE, how)
        role = "leader" if name == leader else "standby"
        return self.signal(fault, operators[name], f"{role} {name}", how)

    def delete(self, fault, pod, namespace, how):
        force = ["--grace-period=0", "--force"] if how.endswith("force") else []
        try:
            self.soak.cluster.kubectl("delete", "pod", pod, "--wait=false", *force, namespace=namespace)
        except Failed as failure:
            if "NotFound" in str(failure):
                return None
            # The request may have been executed although its answer is lost.
            self.note(fault, f"{pod} (unknown outcome)")
            return pod
        self.note(fault, pod)
        return pod

    def signal(self, fault, process, name, how):
        if how == "kill":
            if not processes.send(process, signal.SIGKILL):
                return None
            self.note(fault, name)
            return name
        with self.lock:
            if process in self.frozen:
                return None
            self.frozen.add(process)
        try:
            if not processes.send(process, signal.SIGSTOP):
                return None
            self.note(fault, name)
            self.over.wait(fault.seconds)
            processes.send(process, signal.SIGCONT)
            return name
        finally:
            with self.lock:
                self.frozen.discard(process)

    def service(self, fault, name, how):
        services = self.soak.services
        process = services.reserve(name)
        if process is None:
            return None
        restart = how == "kill"
        try:
            if not processes.send(process, signal.SIGKILL if restart else signal.SIGSTOP):
                restart = True
                return None
            self.note(fault, name)
            self.over.wait(fault.seconds)
            if not restart:
                processes.send(process, signal.SIGCONT)
            return name
        finally:
            services.release(name, restart)


class Soak:
    def __init__(self, args):
        self.args = args
        self.cluster = local.Cluster(NAMESPACE)
        self.folder = CHECKOUT / "build/chaos"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.folder / f"{args.seed}.log", "w", buffering=1)
        self.log_lock = threading.Lock()
        self.services = local.Services(self.cluster, self.log)
        self.start = time.monotonic()
        self.hashes = {}  # task: SHA-256 of the undisturbed run
        self.leader = ""  # identity
        self.leaders = set()
        self.rounds = []
        self.violations = []
        self.applied = collections.Counter()
        self.skipped = collections.Counter()
        self.snapshots = []  # operator processes between rounds
        self.cpu = {"operator": Usage(), "workers": Usage()}
        self.loads = []
        self.last_minute = 0
        self.jobs = {}  # name: object as last seen
        self.faults = None
        version = local.output_of(["bash", "-c", '. docker/version.sh; echo "$version"'], cwd=CHECKOUT).strip()
        self.image = f"tilewright-worker:{version}"

    def log(self, line):
        stamp = datetime.datetime.now().strftime("%H:%M:%S")
        with self.log_lock:
            self.log_file.write(f"{stamp} {line}\n")

    def say(self, line):
        print(line, flush=True)
        self.log(line)

    def violated(self, sentence):
        self.violations.append(sentence)
        self.say(f"VIOLATED: {sentence}")

    # --- preparation

    def prepare(self):
        """A namespace with a claim whose volume holds the model and the data of both tasks."""
        model = pathlib.Path(os.environ.get("TILEWRIGHT_MODEL_DIR", CHECKOUT / ".cache/models/all-minilm-l6-v2"))
        if not (model / "model.safetensors").exists():
            raise Failed(f"{model} has no model.safetensors: run `make model`")
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=30s")
        local.output_of([local.COMMAND, "up"], seconds=300)  # makes released volumes available
        self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": NAMESPACE,
                    "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
                },
            }
        )
        local.wait_until(
            "the default service account", 60, lambda: self.cluster.get("serviceaccount/default")
        )
        volume = next(
            each["metadata"]["name"]
            for each in self.cluster.get("pv")["items"]
            if each["status"]["phase"] == "Available"
        )
        self.volume = self.cluster.state / "var/lib/volumes" / volume
        for name, source in (
            ("model", model),
            ("paraphrase", CHECKOUT / "examples/data/paraphrase"),
            ("questions", CHECKOUT / "examples/data/questions"),
        ):
            shutil.copytree(source, self.volume / name)
        self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "work"},
                "spec": {
                    "volumeName": volume,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )
        self.services.check()
        local.wait_until("the cluster", READY_SECONDS, self.cluster.ready)

    def undisturbed(self):
        """{task: SHA-256 of the model} of `tilewright up` with one worker and no faults."""
        hashes = {}
        for task in TRAINERS:
            job = schedule.Job(f"undisturbed-{task}", task, 1)
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                for name in ("model", "paraphrase", "questions"):
                    (folder / name).symlink_to(self.volume / name)
                (folder / "job.yaml").write_text(json.dumps(manifest(job, self.image)))
                began = time.monotonic()
                local.output_of(
                    [CHECKOUT / "build/release/bin/tilewright", "up", "job.yaml"], JOB_SECONDS, cwd=folder
                )
                hashes[task] = sha256_of(folder / job.name / "model.safetensors")
            self.say(f"undisturbed {task}: {hashes[task][:16]}... in {time.monotonic() - began:.0f} s")
        return hashes

    # --- while jobs run

    def observe(self):
        """Samples everything once; the next call repeats requests that fail."""
        self.services.check()
        self.cpu["operator"].sample(self.cluster.operators().values())
        self.cpu["workers"].sample(
            process
            for process, environment in processes.programs("tilewright-worker")
            if environment.get("TILEWRIGHT_JOB_NAME", "").startswith("chaos-")
        )
        try:
            self.jobs = {job["metadata"]["name"]: job for job in self.cluster.get("trainjobs")["items"]}
            self.leader = self.cluster.leader()
            if self.leader:
                self.leaders.add(self.leader)
        except Failed as failure:
            self.log(f"no answer: {str(failure)[-120:]}")
        minute = int((time.monotonic() - self.start) / 60)
        if minute > self.last_minute:
            self.last_minute = minute
            self.loads.append(os.getloadavg()[0])
            self.progress(minute)

    def progress(self, minute):
        parts = []
        for name, job in sorted(self.jobs.items()):
            status = job.get("status", {})
            step = status.get("progress", {}).get("step", 0)
            parts.append(f"{name} {status.get('phase', '-')} {step}")
        applied = self.applied + collections.Counter(
            fault.kind for fault, _ in (self.faults.applied if self.faults else [])
        )
        self.say(
            f"{minute:4} min  rounds {len(self.rounds)}  faults {sum(applied.values())}  "
            f"load {os.getloadavg()[0]:.1f}  {', '.join(parts)}"
        )

    def play(self, number):
        one = schedule.make_round(self.args.seed, number)
        self.log(schedule.describe(one))
        began = time.monotonic()
        for job in one.jobs:
            self.cluster.create(manifest(job, self.image))
        local.wait_until(
            "the jobs", 60, lambda: self.observe() or all(job.name in self.jobs for job in one.jobs)
        )
        uids = {job.name: self.jobs[job.name]["metadata"]["uid"] for job in one.jobs}
        finished = {}  # name: seconds
        self.faults = faults = Faults(self, one, uids)
        try:
            while len(finished) < len(one.jobs):
                self.observe()
                for job in one.jobs:
                    phase = self.jobs.get(job.name, {}).get("status", {}).get("phase")
                    if job.name not in finished and phase in ("Succeeded", "Failed"):
                        finished[job.name] = time.monotonic() - began
                if time.monotonic() - began > JOB_SECONDS:
                    break
                time.sleep(POLL_SECONDS)
        finally:
            faults.end()
        self.faults = None
        self.applied.update(fault.kind for fault, _ in faults.applied)
        self.skipped.update(faults.skipped)
        for job in one.jobs:
            if job.name not in finished:
                self.violated(f"{job.name} did not finish within {JOB_SECONDS} s")
        if len(finished) < len(one.jobs):
            return
        local.wait_until("the cluster", READY_SECONDS, lambda: self.observe() or self.cluster.ready())
        results = [self.check_job(job, faults.applied, finished[job.name]) for job in one.jobs]
        self.clean_up(one, uids)
        for job, result in zip(one.jobs, results):
            # After the job's last process has ended: none of them can still replace the model.
            output = self.volume / job.name
            result["sha256"] = sha256_of(output / "model.safetensors")
            expected = self.hashes[job.task]
            if result["sha256"] != expected:
                self.violated(f"{job.name}: SHA-256 {result['sha256']}, undisturbed {expected}")
            else:
                shutil.rmtree(output)
        self.measure_operator(number)
        self.rounds.append(
            {
                "round": number,
                "seconds": rounded(time.monotonic() - began),
                "faults": len(faults.applied),
                "jobs": results,
            }
        )

    # --- invariants

    def check_job(self, job, applied, seconds):
        found = self.cluster.ask(f"trainjob/{job.name}")["status"]
        restarts = found.get("restarts", {})
        own = [fault.kind for fault, hit in applied if job.name in hit]
        kills = own.count("worker-kill")
        deletions = own.count("pod-delete") + own.count("pod-delete-force")
        freezes = own.count("worker-freeze")
        if found.get("phase") != "Succeeded":
            self.violated(f"{job.name} is {found.get('phase')}: {found.get('conditions')}")
        if found.get("progress", {}).get("step") != TRAINERS[job.task]["max_steps"]:
            self.violated(f"{job.name} succeeded at step {found.get('progress', {}).get('step')}")
        # Only a kill is a failure of the program.
        if restarts.get("program", 0) > kills:
            self.violated(f"{job.name}: {restarts['program']} restarts of the program after {kills} kills")
        # A worker leaves with 144 if its peers or the coordinator are away for long.
        others = sum(1 for fault, _ in applied if fault.kind not in schedule.ON_WORKERS) + freezes
        most = kills + deletions + others * job.workers
        if restarts.get("infrastructure", 0) > most:
            self.violated(f"{job.name}: {restarts['infrastructure']} restarts, at most {most} are explained")
        if restarts.get("outOfMemory", 0):
            self.violated(f"{job.name}: a worker was OOM-killed")
        for failure in found.get("failures", []):
            code = failure.get("exitCode", 128 + failure.get("signal", 0))
            if code not in EXPECTED_EXIT_CODES and failure.get("reason") not in EXPECTED_REASONS:
                self.violated(f"{job.name}: a worker failed by itself: {failure}")
        self.log(f"{job.name}: {json.dumps(found)}")
        return {
            "task": job.task,
            "workers": job.workers,
            "seconds": rounded(seconds),
            "faults": len(own),
            "restarts": restarts.get("total", 0),
        }

    def clean_up(self, one, uids):
        self.cluster.delete_jobs([job.name for job in one.jobs])

        def left():
            self.services.check()
            return self.cluster.get(OWNED_KINDS)["items"]

        try:
            local.wait_until("the deletion of all objects", CLEANUP_SECONDS, lambda: not left())
        except Failed as failure:
            names = [f"{each['kind']} {each['metadata']['name']}" for each in self.cluster.ask(OWNED_KINDS)["items"]]
            self.violated(f"{failure}: {', '.join(names)} remain")
        values = set(uids.values())
        remaining = processes.with_variable("TILEWRIGHT_JOB_UID", values)
        if remaining:
            self.violated(f"processes of deleted jobs: {[process.pid for process in remaining]}")

    def measure_operator(self, number):
        for name, process in sorted(self.cluster.operators().items()):
            usage = processes.usage(process)
            if usage is not None:
                self.snapshots.append({"round": number, "pod": name, "pid": process.pid, **usage})
                self.log(f"operator {self.snapshots[-1]}")
        self.check_operator_exits()

    def check_operator_exits(self):
        """A replica ends by our SIGKILL (137), by the kubelet's SIGTERM (0 or 143), never by itself."""
        pods = self.cluster.ask(
            "pods", "--selector=app.kubernetes.io/component=controller", namespace=OPERATOR_NAMESPACE
        )
        for pod in pods["items"]:
            for status in pod["status"].get("containerStatuses", []):
                ended = status.get("lastState", {}).get("terminated")
                if ended and ended["exitCode"] not in (0, 137, 143) or (ended or {}).get("reason") == "OOMKilled":
                    self.violated(f"{pod['metadata']['name']} ended by itself: {ended}")

    def extremes(self, chosen):
        return {
            key: max((each[key] for each in chosen), default=0)
            for key in ("descriptors", "threads", "resident", "maximum")
        }

    def operator_usage(self):
        """Largest values of a replica between rounds: in the first rounds, in the last one."""
        if not self.rounds:
            return None
        first = [each for each in self.snapshots if each["round"] < BASELINE_ROUNDS]
        last = [each for each in self.snapshots if each["round"] == self.rounds[-1]["round"]]
        return {"first_rounds": self.extremes(first), "last_round": self.extremes(last)}

    def check_operator_usage(self):
        if len(self.rounds) <= BASELINE_ROUNDS:
            return
        usage = self.operator_usage()
        before, after = usage["first_rounds"], usage["last_round"]
        if after["descriptors"] > before["descriptors"] + DESCRIPTOR_SLACK:
            self.violated(f"descriptors of an operator: {before['descriptors']}, then {after['descriptors']}")
        if after["resident"] > before["resident"] + MEMORY_SLACK:
            self.violated(
                f"resident memory of an operator: {before['resident'] >> 20} MiB, then "
                f"{after['resident'] >> 20} MiB"
            )

    # --- the whole

    def run(self):
        self.commit = checkout_commit()
        self.say(f"seed {self.args.seed}; details in {self.folder / f'{self.args.seed}.log'}")
        self.prepare()
        self.hashes = self.undisturbed()
        self.start = time.monotonic()
        number = 0
        while time.monotonic() - self.start < 60 * self.args.minutes:
            known = len(self.violations)
            self.play(number)
            number += 1
            if len(self.violations) > known and (not self.args.keep_going or len(self.rounds) < number):
                return
        self.check_operator_usage()

    def result(self):
        sys.path.insert(0, str(CHECKOUT / "bench"))
        import support

        durations = [job["seconds"] for each in self.rounds for job in each["jobs"]]
        return {
            "date": datetime.date.today().isoformat(),
            "cpu": support.cpu_name(),
            "commit": self.commit,
            "seed": self.args.seed,
            "minutes": rounded((time.monotonic() - self.start) / 60),
            "passed": not self.violations,
            "violations": self.violations,
            "rounds": len(self.rounds),
            "jobs": len(durations),
            "job_seconds": {
                "least": min(durations, default=0),
                "mean": rounded(sum(durations) / max(1, len(durations))),
                "most": max(durations, default=0),
            },
            "restarts": sum(job["restarts"] for each in self.rounds for job in each["jobs"]),
            "faults": dict(sorted(self.applied.items())),
            "faults_without_target": sum(self.skipped.values()),
            "leaders": len(self.leaders),
            "service_exits": self.services.own_exits,
            "sha256": self.hashes,
            "operator": self.operator_usage(),
            "cpu_seconds": {name: rounded(usage.total()) for name, usage in self.cpu.items()},
            "mean_load": rounded(sum(self.loads) / max(1, len(self.loads))),
        }


def checkout_commit():
    """Of the programs under test, if it is called before the checkout changes."""
    return subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=CHECKOUT, capture_output=True, text=True
    ).stdout.strip()


def append_result(path, result):
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    staging = path.with_suffix(".staging")
    staging.write_text(json.dumps({"runs": [*runs, result]}, indent=1) + "\n")
    staging.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="no round begins after this time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--print_rounds", type=int, metavar="N", help="print the first N rounds and exit")
    parser.add_argument("--keep_going", action="store_true", help="begin another round after a violation")
    parser.add_argument("--out", type=pathlib.Path, default=CHECKOUT / "bench/results/chaos.json")
    args = parser.parse_args()
    if args.print_rounds is not None:
        for number in range(args.print_rounds):
            print(schedule.describe(schedule.make_round(args.seed, number)))
        return 0

    def interrupted(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    soak = None
    try:
        soak = Soak(args)
        soak.run()
    except Failed as failure:
        if soak is None:
            print(f"soak: {failure}", file=sys.stderr)
            return 2
        soak.violated(str(failure))
    except KeyboardInterrupt:
        if soak is None:
            return 130
        soak.violated("interrupted")
    finally:
        if soak is not None and soak.faults is not None:
            soak.faults.end()  # nothing stays frozen
    result = soak.result()
    append_result(args.out, result)
    print(json.dumps(result, indent=1))
    if not result["passed"]:
        soak.say(f"the namespace {NAMESPACE} is kept")
        return 1
    soak.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    return 0


if __name__ == "__main__":
    sys.exit(main())
