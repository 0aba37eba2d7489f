"""The local cluster: kubectl, the node's services, and the processes of operator and workers."""

import json
import pathlib
import subprocess
import threading
import time

import processes

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = CHECKOUT / "tests/cluster/cluster"
OPERATOR_NAMESPACE = "tilewright-system"
SERVICES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
)
REQUEST_SECONDS = 10  # of one request to the API server, which may be frozen
ANSWER_SECONDS = 120  # with repetitions


class Failed(Exception):
    """A command failed, or something did not happen in time."""


def run(command, seconds, **options):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]}: timeout after {seconds} s") from None


def output_of(command, seconds=60, **options):
    result = run([str(word) for word in command], seconds, **options)
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {result.stderr.strip()[-500:]}")
    return result.stdout


def wait_until(what, seconds, check, interval=0.5):
    """Polls until check() returns something true. Failed requests to the API server are repeated."""
    end = time.monotonic() + seconds
    last = None
    while True:
        try:
            value = check()
            if value:
                return value
        except Failed as failure:
            last = failure
        if time.monotonic() >= end:
            raise Failed(f"{what}: not within {seconds} s" + (f"; {last}" if last else ""))
        time.sleep(interval)


class Cluster:
    def __init__(self, namespace):
        self.namespace = namespace
        self.state = pathlib.Path(output_of([COMMAND, "folder"]).strip())
        self.kubeconfig = self.state / "kubeconfig"
        if not (self.state / "machine-init").exists() or not self.kubeconfig.exists():
            raise Failed("no cluster of `make cluster` is running: the soak stops its services")
        programs = pathlib.Path(output_of([CHECKOUT / ".ci/control-plane", "folder"]).strip())
        self.program = programs / "kubectl"
        self.init = int((self.state / "machine-init").read_text().split()[0])

    def kubectl(self, *arguments, namespace=None, text=None):
        """One attempt. Returns standard output; raises Failed."""
        return output_of(
            [
                self.program,
                f"--kubeconfig={self.kubeconfig}",
                f"--namespace={namespace or self.namespace}",
                f"--request-timeout={REQUEST_SECONDS}s",
                f"--cache-dir={self.state / 'etc/kubectl-cache'}",
                *arguments,
            ],
            seconds=4 * REQUEST_SECONDS,
            input=text,
        )

    def get(self, *arguments, namespace=None):
        return json.loads(self.kubectl("get", *arguments, "-o", "json", namespace=namespace))

    def ask(self, *arguments, namespace=None):
        """get() between the faults of two rounds: repeated if a request fails."""
        return wait_until(
            f"get {arguments[0]}", ANSWER_SECONDS, lambda: self.get(*arguments, namespace=namespace)
        )

    def create(self, manifest):
        def once():
            try:
                return self.kubectl("create", "-f", "-", text=json.dumps(manifest)) or True
            except Failed as failure:
                if "AlreadyExists" in str(failure):  # an earlier request whose answer is lost
                    return True
                raise

        wait_until(f"the creation of {manifest['metadata']['name']}", ANSWER_SECONDS, once)

    def delete_jobs(self, names):
        wait_until(
            "the deletion of the jobs",
            ANSWER_SECONDS,
            lambda: self.kubectl(
                "delete", "trainjobs", *names, "--wait=false", "--ignore-not-found"
            )
            or True,
        )

    def service(self, name):
        """The running process of a service of the node, or None."""
        try:
            inner = int((self.state / "pids" / name).read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return processes.in_machine(self.init, inner)

    def start_service(self, name):
        output_of([COMMAND, "start", name])

    def ready(self):
        """Whether the API server answers, the node is ready and the operator has all its replicas."""
        self.kubectl("get", "--raw", "/readyz")
        node = self.get("nodes")["items"][0]
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        operator = self.get(
            "deployment/tilewright-controller", namespace=OPERATOR_NAMESPACE
        )
        return conditions.get("Ready") == "True" and operator["status"].get(
            "availableReplicas", 0
        ) == operator["spec"]["replicas"]

    def operators(self):
        """{name of the pod: process} of the operator's replicas."""
        found = {}
        for process, environment in processes.programs("tilewright"):
            name = environment.get("POD_NAME", "")
            if name and environment.get("POD_NAMESPACE") == OPERATOR_NAMESPACE:
                found[name] = process
        return found

    def leader(self):
        """The identity of the leader: the name of its pod, an underscore, a UUID of its process."""
        lease = self.get("lease/tilewright-controller", namespace=OPERATOR_NAMESPACE)
        return lease["spec"].get("holderIdentity") or ""

    def workers(self, uid):
        """{index: process} of a job's workers."""
        return {
            int(environment.get("TILEWRIGHT_WORKER_INDEX", "-1")): process
            for process, environment in processes.programs("tilewright-worker")
            if environment.get("TILEWRIGHT_JOB_UID") == uid
        }


class Services:
    """Keeps the node's services running, as systemd with Restart=always would, except those that a
    fault keeps down."""

    def __init__(self, cluster, log):
        self.cluster = cluster
        self.log = log
        self.lock = threading.Lock()
        self.down = set()  # killed or frozen by a fault
        self.own_exits = {}  # name: how often it exited without a fault
        self.known = {}  # name: process

    def reserve(self, name):
        """Claims a service for a fault. Returns its process, or None if it has a fault already."""
        with self.lock:
            if name in self.down:
                return None
            process = self.known.get(name)
            if process is None or not processes.is_running(process):
                return None
            self.down.add(name)
            return process

    def release(self, name, restart):
        with self.lock:
            try:
                if restart:
                    self.cluster.start_service(name)
                    self.known[name] = self.cluster.service(name)
            finally:
                self.down.discard(name)

    def check(self):
        for name in SERVICES:
            with self.lock:
                if name in self.down:
                    continue
                process = self.known.get(name)
                if process is not None and processes.is_running(process):
                    continue
                found = self.cluster.service(name)
                if found is None:
                    self.own_exits[name] = self.own_exits.get(name, 0) + 1
                    self.log(f"{name} has exited by itself; started again")
                    self.cluster.start_service(name)
                    found = self.cluster.service(name)
                self.known[name] = found

