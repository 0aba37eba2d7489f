"""The jobs and faults of each round of the soak, derived from a seed alone.

A round is a function of (seed, number): the same seed gives the same rounds, however long each of
them takes. Times count from the creation of the round's jobs.
"""

import dataclasses
import random

SLOTS = 3  # jobs at once
GLOBAL_BATCH = 12  # divisible by each number of workers, so that all jobs of a task are the same
MAX_WORKERS = 4

# Faults begin in this part of a round; afterwards the jobs can finish.
FIRST_FAULT_SECONDS = (5, 15)
LAST_FAULT_SECONDS = 150
GAP_SECONDS = (2, 12)


@dataclasses.dataclass(frozen=True)
class Kind:
    weight: int
    # Seconds from the fault to the end of the fault: SIGCONT, or the restart of a node's service.
    # None: somebody else repairs it (operator, kubelet).
    seconds: tuple = None


# Freezes of a worker are shorter and longer than the heartbeat timeout (10 s), those of an operator
# and of the control plane shorter and longer than the lease (15 s), those of the kubelet shorter and
# longer than the node's grace period (40 s). An operator's liveness probe fails after 60 s.
KINDS = {
    "pod-delete": Kind(3),
    "pod-delete-force": Kind(2),
    "worker-kill": Kind(5),
    "worker-freeze": Kind(4, (1, 25)),
    "operator-kill": Kind(1),
    "operator-delete": Kind(1),
    "operator-freeze": Kind(2, (3, 40)),
    "apiserver-kill": Kind(1, (1, 10)),
    "apiserver-freeze": Kind(1, (2, 30)),
    "etcd-kill": Kind(1, (1, 10)),
    "etcd-freeze": Kind(1, (2, 30)),
    "kubelet-kill": Kind(1, (2, 30)),
    "kubelet-freeze": Kind(1, (5, 60)),
}
ON_WORKERS = ("pod-delete", "pod-delete-force", "worker-kill", "worker-freeze")
PROGRAMS = {"apiserver": "kube-apiserver", "etcd": "etcd", "kubelet": "kubelet"}


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    task: str  # mrpc or squad
    workers: int


@dataclasses.dataclass(frozen=True)
class Fault:
    at: float  # seconds
    kind: str
    slot: int  # job, for faults of workers
    draw: float  # in [0, 1): which of the targets that exist at that time
    seconds: float  # duration; 0 if somebody else repairs the fault


@dataclasses.dataclass(frozen=True)
class Round:
    number: int
    jobs: tuple
    faults: tuple


def make_round(seed, number):
    rng = random.Random(f"{seed}/{number}")
    jobs = tuple(
        Job(
            name=f"chaos-{number}-{slot}",
            task="squad" if slot == SLOTS - 1 else "mrpc",
            workers=rng.randint(1, MAX_WORKERS),
        )
        for slot in range(SLOTS)
    )
    faults = []
    names = list(KINDS)
    weights = [KINDS[name].weight for name in names]
    at = rng.uniform(*FIRST_FAULT_SECONDS)
    while at < LAST_FAULT_SECONDS:
        kind = rng.choices(names, weights)[0]
        slot = rng.randrange(SLOTS)
        draw = rng.random()
        lasts = KINDS[kind].seconds
        seconds = rng.uniform(*lasts) if lasts else 0.0
        faults.append(Fault(round(at, 2), kind, slot, round(draw, 4), round(seconds, 2)))
        at += rng.uniform(*GAP_SECONDS)
    return Round(number, jobs, tuple(faults))


def describe(one):
    lines = [
        f"round {one.number}: "
        + ", ".join(f"{job.name} {job.task} x {job.workers}" for job in one.jobs)
    ]
    for fault in one.faults:
        target = f" job {fault.slot}" if fault.kind in ON_WORKERS else ""
        lasts = f" for {fault.seconds:.1f} s" if fault.seconds else ""
        lines.append(f"  {fault.at:6.1f} s  {fault.kind}{target} ({fault.draw:.4f}){lasts}")
    return "\n".join(lines)
