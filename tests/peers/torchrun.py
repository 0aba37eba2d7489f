"""Runs agents of PyTorch's torchrun whose store is Tilewright's, and kills some of them.

    python3 tests/peers/torchrun.py --server build/release/tests/tcpstore_server --out bench/results/torchrun.json

Each agent runs in a PID namespace of its own with an address of its own, as in a pod (needs root). The same kills are made
with agents of which the first holds the store, as torchrun does by itself. README.md has the results.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from allreduce import total_after  # noqa: E402

DEADLINE = 300  # seconds for a wait; the machine may be busy
STEPS, STEP_SECONDS = 60, 0.25


class Store:
    """Tilewright's server."""

    def __init__(self, program, port=0):
        self.process = subprocess.Popen([program, str(port), "127.0.0.1=job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()


class Job:
    """Agents, their output and their steps."""

    def __init__(self, agents, port, holder=None, restart=False, environment=None, max_restarts=10):
        self.count, self.port, self.holder, self.restart = agents, port, holder, restart
        self.environment, self.max_restarts = environment or {}, max_restarts
        self.folder = tempfile.TemporaryDirectory(prefix="torchrun-")
        self.changed = threading.Condition()
        self.agents, self.exits, self.killed = {}, {}, set()
        self.step, self.worlds, self.lines = 0, [], []
        self.restarts = 0
        for index in range(agents):
            self.start(index)

    def start(self, index):
        address = f"127.0.0.{11 + index}"
        is_host = int(self.holder == index)
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "torch.distributed.run",
                   "--nnodes", f"1:{self.count}", "--nproc-per-node", "1", "--max-restarts", str(self.max_restarts), "--monitor-interval", "0.1",
                   "--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                   "--rdzv-conf", f"is_host={is_host},last_call_timeout=3,read_timeout=30", "--local-addr", address,
                   str(HERE / "allreduce.py"), self.folder.name, str(STEPS), str(STEP_SECONDS)]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                                      "PYTHONUNBUFFERED": "1", **self.environment})
        with self.changed:
            self.agents[index] = agent
            self.exits.pop(index, None)
        threading.Thread(target=self.read, args=(index, agent), daemon=True).start()

    def read(self, index, agent):
        for line in agent.stdout:
            with self.changed:
                self.lines.append(f"{index}: {line.rstrip()}")
                if match := re.search(r"step (\d+) world (\d+)", line):
                    self.step = int(match[1])
                    if not self.worlds or self.worlds[-1] != int(match[2]):
                        self.worlds.append(int(match[2]))
                self.changed.notify_all()
        code = agent.wait()
        with self.changed:
            self.exits[index] = code
            self.changed.notify_all()
        # The kubelet, with restartPolicy OnFailure.
        if self.restart and code != 0 and index not in self.killed and self.restarts < 20:
            self.restarts += 1
            self.start(index)

    def kill(self, index):
        self.killed.add(index)
        self.agents[index].kill()  # and all processes of its namespace

    def wait_for(self, condition):
        with self.changed:
            return self.changed.wait_for(condition, DEADLINE)

    def ended(self):
        """All agents have exited for good."""
        return all(index in self.exits and (self.exits[index] == 0 or not self.restart or index in self.killed)
                   for index in range(self.count))

    def result(self):
        self.wait_for(self.ended)
        checkpoint = pathlib.Path(self.folder.name) / "checkpoint.json"
        step, total = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, 0)
        survivors = [self.exits.get(index) for index in range(self.count) if index not in self.killed]
        return {"finished": step == STEPS and total == total_after(STEPS) and all(code == 0 for code in survivors),
                "steps": step, "worlds": self.worlds, "exit_codes": survivors, "agents_restarted": self.restarts}

    def stop(self):
        self.restart = False
        for agent in self.agents.values():
            agent.kill()
        self.folder.cleanup()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def run(name, program, agents, killed, environment=None, replace=False, lose_store=False, restart=False, max_restarts=10):
    """killed: agents to kill, in this order, each after 10 more steps with all others."""
    store = Store(program) if program else None
    job = Job(agents, store.port if store else free_port(), None if store else 0, restart or lose_store, environment, max_restarts)
    begin = time.monotonic()
    try:
        alive = agents
        for index in killed:
            target = job.step + 10
            if not job.wait_for(lambda: job.step >= target and job.worlds[-1] == alive or job.ended()) or job.ended():
                break
            job.kill(index)
            alive -= 1
            if replace:
                job.wait_for(lambda: index in job.exits)
                job.killed.discard(index)
                job.start(index)
                alive += 1
        if lose_store:
            job.wait_for(lambda: job.step >= 10 and job.worlds[-1] == agents)
            store.kill()
            store = Store(program, store.port)
        result = job.result()
    finally:
        job.stop()
        if store:
            store.kill()
    result = {"name": name, "store": "Tilewright" if program else "agent 0", **result,
              "seconds": round(time.monotonic() - begin)}
    print(json.dumps(result), flush=True)
    if os.environ.get("TORCHRUN_LINES"):
        print("\n".join(job.lines), flush=True)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    scenarios = [
        ("2 agents", 2, [], {}),
        ("2 agents, agent 1 killed", 2, [1], {}),
        ("2 agents, agent 0 killed", 2, [0], {}),
        ("3 agents, agent 0 killed", 3, [0], {}),
        ("4 agents, agents 3 and 0 killed", 4, [3, 0], {}),
        ("2 agents, agent 0 killed and replaced", 2, [0], {"replace": True}),
        # The survivor closes the rendezvous in the store, because it may not restart its workers.
        ("2 agents without restarts, agent 1 killed and replaced", 2, [1],
         {"replace": True, "restart": True, "max_restarts": 0}),
        ("2 agents, the store lost", 2, [], {"lose_store": True}),
    ]
    results = []
    for name, agents, killed, more in scenarios:
        for program in (None, options.server):
            if options.only not in name or (more.get("lose_store") and not program):
                continue
            results.append(run(name, program, agents, killed, environment=own_store, **more))
    staging = pathlib.Path(options.out + ".staging")
    staging.write_text(json.dumps({"torch": torch.__version__, "steps": STEPS, "results": results}, indent=1) + "\n")
    os.replace(staging, options.out)
    sys.exit(0 if all(one["finished"] for one in results if one["store"] == "Tilewright") else 1)


if __name__ == "__main__":
    main()
