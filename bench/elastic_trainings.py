"""Trainings under `tilewright up` and on two hosts, whose logs tell what they do while they run."""

import datetime
import hashlib
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys

import support
from emulated_link import ADDRESSES, NAMESPACES

MAX_WORKERS = 4
TIMEOUT = 900  # seconds of one training


def job_of(args, replicas, save_steps):
    elastic_policy = {"minReplicas": 1, "maxReplicas": MAX_WORKERS, "maxRestarts": 1000}
    return support.train_job(args, "elastic", elastic_policy, replicas, output="output:out",
                             learning_rate=1e-4, save_steps=save_steps, logging_steps=1, **args.flags)


STEP = re.compile(r"^(\S+) info step (\d+)/(\d+) ")
CONTINUED = re.compile(
    r"^(\S+) info (recovered|resized): (.*); (\d+) workers? continues? after step (\d+) in ([0-9.]+) s "
    r"\(join ([0-9.]+), connect ([0-9.]+), agree ([0-9.]+), state ([0-9.]+) s(.*)\)$"
)
RESUMED = re.compile(r" info resuming from ")
PART_OF_STATE = " s for a part of "
STATE_SENT = re.compile(r"has the state: its rest was sent during steps? (\d+)(?: to (\d+))?")


def seconds_of(stamp):
    return datetime.datetime.fromisoformat(stamp.rstrip("Z") + "+00:00").timestamp()


def steps_in(lines):
    """(time, step, number of steps) of each line of the log that reports a step."""
    return [(seconds_of(m[1]), int(m[2]), int(m[3])) for line in lines if (m := STEP.match(line))]


def between_steps(steps):
    """Seconds from the first step's end to the last one's."""
    return round(steps[-1][0] - steps[0][0], 1) if steps else None


def world_after(line):
    """The workers that a line of the log reports; 0 if it reports none."""
    continued = re.search(r"; (\d+) workers? continues? after", line)
    joined = re.search(r"membership epoch \d+: rank \d+ of (\d+)", line)
    return int((continued or joined or [0, 0])[1])


class Training:
    """A training whose log grows while it runs: what it says of steps, members and recoveries."""

    def lines(self):
        """The lines of all workers with a time, sorted."""
        raise NotImplementedError

    def running(self):
        raise NotImplementedError

    def end(self):
        """Ends it if it runs."""
        raise NotImplementedError

    def steps(self):
        return steps_in(self.lines())

    def last_step(self):
        steps = self.steps()
        return steps[-1][1] if steps else 0

    def world(self):
        """Workers that train, after the last change."""
        return next(filter(None, map(world_after, reversed(self.lines()))), 0)

    def all_have_state(self):
        """Whether the workers that were added in the last change have got all of the state."""
        for line in reversed(self.lines()):
            if CONTINUED.match(line):
                return PART_OF_STATE not in line
            if STATE_SENT.search(line):
                return True
        return True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()  # what an exception has left

    def wait_until(self, condition, limit=60):
        return support.wait_until(condition, limit, self.running)

    def summary(self):
        """Continuations, checks that no step went back by more than one, and the state's own counts."""
        lines = self.lines()
        continued = []
        for line in lines:
            if m := CONTINUED.match(line):
                noticed = re.search(r"noticed ([0-9.]+) s", m[11])
                continued.append({
                    "at": seconds_of(m[1]), "kind": m[2], "change": m[3], "workers": int(m[4]),
                    "step": int(m[5]), "seconds": float(m[6]), "join": float(m[7]),
                    "connect": float(m[8]), "agree": float(m[9]), "state": float(m[10]),
                    "steps_lost": 1 if "runs again" in m[3] else 0,
                    "noticed": float(noticed[1]) if noticed else None,
                })
        steps = steps_in(lines)
        seen, most = 0, 0
        for _, step, _ in steps:
            most = max(most, seen - step + 1) if step <= seen else most
            seen = max(seen, step)
        return {
            "continued": continued,
            "seconds": between_steps(steps),
            "steps_back_at_most": most,
            "checkpoints_read": sum(1 for line in lines if RESUMED.search(line)),
        }


class Up(Training):
    """A training under `tilewright up` in its own folder."""

    def __init__(self, args, folder, save_steps, fault=""):
        self.args, self.folder, self.save_steps = args, pathlib.Path(folder), save_steps
        self.folder.mkdir()
        self.fault = fault
        self.write(replicas=2)
        self.start()

    def write(self, replicas):
        support.write_json(self.folder / "job.yaml",
                           job_of(self.args, replicas, self.save_steps))

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
        return logged(sorted((self.folder / ".tilewright/elastic/logs").glob("*")))

    def workers(self):
        """Worker index -> PID; none after the end."""
        found = {}
        if not self.running():
            return found
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

    def end(self):
        if self.running():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(60)

    def finish(self):
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            sys.exit(f"{self.folder}: not finished in {TIMEOUT} s")
        if code != 0:
            sys.exit(f"`tilewright up` ended with code {code}:\n{(self.folder / 'up.log').read_text()[-4000:]}")
        return digest(self.folder / "out")


class TwoHosts(Training):
    """A training of an agent in each namespace of a link; the first serves the rendezvous."""

    def __init__(self, args, folder, more_flags=()):
        self.args, self.folder, self.more_flags = args, pathlib.Path(folder), more_flags
        self.folder.mkdir()
        self.key = support.write_job_key(self.folder / "key")
        self.agents = []

    def start(self, processes=1):
        """The agent of the next host."""
        host = len(self.agents)
        with open(self.folder / f"host{host}.log", "wb") as log:
            self.agents.append(subprocess.Popen(
                ["ip", "netns", "exec", NAMESPACES[host], self.args.worker, "agent", "--nnodes=1:2",
                 f"--nproc-per-node={processes}", "--rdzv-backend=c10d", "--rdzv-id=elastic",
                 f"--rdzv-endpoint={ADDRESSES[0]}", f"--rdzv-key-file={self.key}",
                 "--max-restarts=1000", "--", "train",
                 *train_flags(self.args, self.folder / "out"), "--logging_steps=1", "--threads=1",
                 *self.more_flags],
                stdout=log, stderr=log))

    def lines(self):
        return logged(sorted(self.folder.glob("host*.log")))

    def running(self):
        return self.agents[0].poll() is None

    def finish(self):
        for host, agent in enumerate(self.agents):
            try:
                code = agent.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.end()
                output = (self.folder / f"host{host}.log").read_text(errors="replace")[-4000:]
                sys.exit(f"the agent of host {host} ended with code {code}:\n{output}")
        return digest(self.folder / "out")

    def end(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()
                agent.wait(60)


def logged(paths):
    """The lines that begin with a time, behind the agent's prefix; those of all files, sorted."""
    found = []
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            line = re.sub(r"^(\[[^]]*\] )+", "", line)
            if re.match(r"\d{4}-\d\d-\d\dT", line):
                found.append(line)
    return sorted(found)


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def train_flags(args, output):
    flags = {**args.flags, "task_name": args.flags["task"], "model_name_or_path": args.model,
             "data_dir": args.data, "output_dir": output, "nominal_workers": 2,
             "max_workers": MAX_WORKERS, "learning_rate": 1e-4, "save_strategy": "no",
             "do_train": True, "do_eval": False}
    del flags["task"]
    return support.flags_of(flags)


def undisturbed(args, folder, workers):
    output = folder / f"plain-{workers}"
    log = folder / f"plain-{workers}.log"
    command = [args.worker, "agent", "--nproc_per_node", str(workers), "--", "train",
               *train_flags(args, output), "--logging_steps=1", "--threads=1"]
    with open(log, "wb") as out:
        subprocess.run(command, check=True, stdout=out, stderr=out)
    return digest(output), steps_in(logged([log]))


def step_seconds(steps, world_changes=()):
    """Median time of a step with the full world, away from changes."""
    gaps = [b[0] - a[0] for a, b in zip(steps, steps[1:]) if b[1] == a[1] + 1
            and not any(a[0] - 2 < t < b[0] + 2 for t in world_changes)]
    return round(statistics.median(gaps), 3) if gaps else None
