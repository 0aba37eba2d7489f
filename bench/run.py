"""Runs every benchmark of `tilewright-worker bench`, and PyTorch, oneDNN and others where installed.

    python bench/run.py --worker build/release/bin/tilewright-worker --model MODEL --data DATA

It compares with oneDNN (inside the worker), PyTorch (steps, Gloo), Open MPI and Hugging Face's
tokenizers, and reports those that are not installed. Rows and plots go to
bench/results/KIND-CPU.json and .svg, tables to bench/results/README.md. A repetition continues
where the last one ended: rows that this commit has measured are kept unless --again is given. Run
it on an idle machine.
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import random_model
import step_vs_pytorch
import support
import tables
import trainings
from results import KEYS, Results, commit_of
from svg import step_figure

PROFILES = ["bert-base:qa:12:384", "bert-base:cls:32:128", "minilm:cls:32:128"]
EXACTNESS = ["minilm:cls:32:128", "bert-base:cls:32:128"]
MEMORY = ["bert-large:qa:12:384"]
ADAMW_MODELS = ["minilm", "bert-base", "bert-large"]
CHECKPOINT_MODELS = ["bert-base"]
# Shapes, and how many times as fast as this machine the emulated hosts are.
SCALING = [("distilbert:qa:32:384", 8), ("bert-base:qa:12:384", 8), ("bert-large:qa:12:384", 8)]
ALLREDUCE_SIZES = [0.0625, 1, 25, 100, 400]  # MiB, those of the scripts of the peers
ALLREDUCE_RANKS = [2, 4]
ALLREDUCE_PEERS = ["gloo", "mpi shm", "mpi tcp"]
SCALING_NODES = [1, 2, 4, 8]
SCALING_LINK = "25Gbit"
# --ddp_comm_hook and --ddp_streams.
SCALING_EXCHANGES = [("no", 1), ("no", 4), ("bf16", 4)]


class Bench:
    def __init__(self, args, commit):
        self.args = args
        self.commit = commit
        self.threads = max(args.threads)

    def call(self, *words):
        """The JSON of one `tilewright-worker bench` command."""
        # Otherwise oneDNN's threads spin while the worker's are measured.
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        command = [self.args.worker, "bench", *(str(word) for word in words), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def due(self, results, key):
        return self.args.again or not results.has(key)

    def measure(self, results, key, figures):
        """Measures one row unless this commit has measured it."""
        if self.due(results, key):
            results.put(key, figures())
            print(f"{results.kind}: {key}", file=sys.stderr)

    def default_shapes(self, kind):
        """The shapes that `bench KIND` measures by default, with their fields in the order of KEYS."""
        shapes = self.call(kind, "--list-shapes")
        return [tuple(shape[name] for name in KEYS[kind] if name in shape) for shape in shapes]

    def repetitions(self):
        return ["--repetitions", self.args.repetitions]

    def workload(self, shape):
        words = ["--model", shape["model"], "--task", shape["task"], "--batch", shape["batch"]]
        words += ["--threads", self.threads]
        if isinstance(shape["length"], int):
            return [*words, "--seq", shape["length"]]
        return [*words, "--lengths", self.args.lengths]

    def workloads(self, shapes):
        """The shapes, and with --lengths the first one with these lengths."""
        parsed = [step_vs_pytorch.parse_shape(shape) for shape in shapes]
        if self.args.lengths:
            name = pathlib.Path(self.args.lengths).stem
            parsed.append({**parsed[0], "batch": 32, "length": name})
        return parsed

    def peak(self):
        results = Results("peak", self.commit)
        if not self.due(results, {"isa": "memcpy", "dtype": "", "threads": self.threads}):
            return
        said = self.call("peak", "--threads", *self.args.threads, *self.repetitions())
        for row in said["peak"]:
            results.put({name: row.pop(name) for name in KEYS["peak"]}, row)
        for row in said["copy"]:
            results.put({"isa": "memcpy", "dtype": "", "threads": row.pop("threads")}, row)

    def gemm(self):
        results = Results("gemm", self.commit)
        shapes = self.default_shapes("gemm")
        for threads in self.args.threads:
            for rows, k, n in shapes:
                keys = [
                    {"rows": rows, "k": k, "n": n, "operation": operation, "threads": threads,
                     "dtype": "bf16", "shards": 8}
                    for operation in ("forward", "dX", "dW")
                ]
                if not any(self.due(results, key) for key in keys):
                    continue
                said = self.call("gemm", "--shapes", f"{rows}x{k}x{n}", "--threads", threads,
                                 "--shards", 8, *self.repetitions())
                for key, row in zip(keys, said["gemm"], strict=True):
                    assert row["operation"] == key["operation"]
                    figures = {name: value for name, value in row.items() if name not in key}
                    results.put(key, {"isa": said["isa"], "kernel": said["kernel"], **figures})
                print(f"gemm: {rows} x {k} x {n}, {threads} threads", file=sys.stderr)

    def attention(self):
        results = Results("attention", self.commit)
        shapes = self.default_shapes("attention")
        for threads in self.args.threads:
            for examples, tokens, heads, size in shapes:
                key = {"examples": examples, "tokens": tokens, "heads": heads,
                       "head_size": size, "threads": threads, "dtype": "bf16"}
                words = ["--sequence", tokens // examples, "--batch", examples]
                self.measure(results, key, lambda: self.attention_row(key, words))
            if self.args.lengths:
                sizes = {"heads": 12, "head_size": 32, "threads": threads, "dtype": "bf16"}
                words = ["--lengths", self.args.lengths, "--batch", 32]
                row = self.attention_row(sizes, words)
                key = {"examples": 32, "tokens": row.pop("tokens"), **sizes}
                results.put(key, row)

    def attention_row(self, key, words):
        said = self.call("attention", *words, "--heads", key["heads"], "--head-size",
                         key["head_size"], "--threads", key["threads"], *self.repetitions())
        row = {name: value for name, value in said["attention"][0].items() if name not in key}
        return {"isa": said["isa"], "kernel": said["kernel"], **row}

    def layers(self):
        results = Results("layers", self.commit)
        for shape in self.workloads(PROFILES):
            key = {"model": shape["model"], "batch": shape["batch"], "length": shape["length"],
                   "threads": self.threads, "dtype": "bf16"}
            self.measure(results, key, lambda: self.figures(
                key, self.call("layers", *self.workload(shape), *self.repetitions())))

    def figures(self, key, said):
        """What a row keeps of the output besides its key."""
        left_out = {*key, "benchmark", "cpu", "virtual_shards"}
        return {name: value for name, value in said.items() if name not in left_out}

    def step(self):
        if reason := step_vs_pytorch.missing_peer(self.args):
            print(f"step: without PyTorch: {reason}", file=sys.stderr)
            self.args.peer = None
        args = argparse.Namespace(**{**vars(self.args), "threads": self.threads})
        shapes = [step_vs_pytorch.parse_shape(shape) for shape in step_vs_pytorch.SHAPES]
        step_vs_pytorch.run(args, self.commit, shapes)
        rows = Results("step", self.commit).rows()
        path = support.results_file("step").with_suffix(".svg")
        support.write_file(path, step_figure(
            [row for row in rows if "pytorch" in row and row["dtype"] == "bf16"], support.cpu_name()))
        tables.write_page(support.results_folder())  # with the figure

    def training(self):
        if reason := support.missing_pytorch(self.args.peer_python):
            print(f"training: left out, without transformers: {reason}", file=sys.stderr)
            return
        args = argparse.Namespace(**{**vars(self.args), "threads": self.threads,
                                     "turns": trainings.TURNS, "data_type": support.data_type()})
        trainings.run(args, self.commit,
                      [trainings.parse_training(text) for text in trainings.TRAININGS])

    def profile(self):
        results = Results("profile", self.commit)
        for shape in self.workloads(PROFILES):
            key = {**shape, "threads": self.threads, "dtype": "bf16"}
            name = "-".join(str(shape[part]) for part in ("model", "task", "batch", "length"))
            plot = f"profile-{support.cpu_model()}-{name}.svg"
            svg = support.results_folder() / plot
            self.measure(results, key, lambda: {"plot": plot, **self.figures(
                key, self.call("profile", *self.workload(shape), "--steps", self.args.profile_steps,
                               "--svg", svg))})

    def exactness(self):
        results = Results("exactness", self.commit)
        for text in EXACTNESS:
            shape = step_vs_pytorch.parse_shape(text)
            key = {**shape, "threads": self.threads, "dtype": "bf16", "shards": 8}
            self.measure(results, key, lambda: self.figures(
                key, self.call("exactness", *self.workload(shape), "--shards", 8, "--pairs",
                               self.args.pairs)))

    def adamw(self):
        results = Results("adamw", self.commit)
        for threads in self.args.threads:
            for model in ADAMW_MODELS:
                key = {"model": model, "threads": threads, "dtype": "bf16"}
                self.measure(results, key, lambda: self.figures(
                    key, self.call("adamw", "--model", model, "--threads", threads,
                                   *self.repetitions())))

    def checkpoint(self):
        results = Results("checkpoint", self.commit)
        for model in CHECKPOINT_MODELS:
            key = {"model": model, "threads": self.threads, "dtype": "bf16"}
            with tempfile.TemporaryDirectory(dir=".") as folder:
                self.measure(results, key, lambda: self.figures(
                    key, self.call("checkpoint", "--model", model, "--threads", self.threads,
                                   "--batch", 8, "--output_dir", pathlib.Path(folder) / "out",
                                   *self.repetitions())))

    def tokenize(self):
        source = pathlib.Path(self.args.data) / "squad" / "train-v1.1.json"
        if not source.exists():
            print(f"tokenize: left out, no {source}", file=sys.stderr)
            return
        versions, reason = tokenizers_version(self.args.peer_python)
        if reason:
            print(f"tokenize: without tokenizers: {reason}", file=sys.stderr)
        results = Results("tokenize", self.commit, versions)
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "contexts.txt"
            text.write_text(contexts(source), encoding="utf-8")
            for threads in self.args.threads:
                key = {"file": "contexts of SQuAD v1.1", "threads": threads}
                self.measure(results, key, lambda: self.tokenize_row(key, text, not reason))

    def tokenize_row(self, key, text, with_peer):
        said = self.call("tokenize", "--tokenizer_name", self.args.model, "--file", text,
                         "--threads", key["threads"], *self.repetitions())
        row = self.figures(key, said)
        if with_peer:
            row["peer_megabytes_per_second"] = tokenizers_rate(
                self.args.peer_python, self.args.model, text, key["threads"])
        return row

    def allreduce(self):
        """Tilewright and its peers in turns; the median of the rounds."""
        results = Results("allreduce", self.commit)
        with tempfile.TemporaryDirectory() as folder:
            peers = self.allreduce_peers(pathlib.Path(folder) / "mpi_allreduce")
            for ranks in ALLREDUCE_RANKS:
                self.allreduce_of(results, ranks, peers)

    def allreduce_of(self, results, ranks, peers):
        keys = {transport: [{"ranks": ranks, "megabytes": size, "transport": transport}
                            for size in ALLREDUCE_SIZES]
                for transport in ("shm", "tcp", *peers)}
        if not any(self.due(results, key) for row in keys.values() for key in row):
            return
        rates = {transport: [] for transport in keys}
        for number in range(self.args.rounds):
            for transport in ("shm", "tcp"):
                rates[transport].append(self.allreduce_rates(transport, ranks))
            for transport, command_of in peers.items():
                # The Gloo script may fail after its last line, when it leaves the process group.
                done = subprocess.run(command_of(ranks), capture_output=True, text=True)
                found = peer_rates(done.stdout)
                if len(found) == len(ALLREDUCE_SIZES):
                    rates[transport].append(found)
                else:
                    print(f"allreduce: without {transport}: exit code {done.returncode}\n"
                          f"{done.stderr}", file=sys.stderr)
            print(f"allreduce: {ranks} ranks, round {number + 1} of {self.args.rounds}",
                  file=sys.stderr)
        for transport, rounds in rates.items():
            for key, samples in zip(keys[transport], zip(*rounds)):
                rate = statistics.median(samples)
                results.put(key, {"milliseconds": key["megabytes"] / 1.024 / rate,
                                  "gigabytes_per_second": rate, "rounds": len(samples)})

    def allreduce_rates(self, transport, ranks):
        """GiB/s by size, of as many repetitions as the peers make."""
        rows = []
        for repetitions, sizes in ((30, ALLREDUCE_SIZES[:2]), (5, ALLREDUCE_SIZES[2:])):
            said = self.call("allreduce", "--ranks", ranks, "--transport", transport, "--sizes",
                             ",".join(map(str, sizes)), "--repetitions", repetitions)
            rows += said["rows"]
        return [row["gigabytes_per_second"] for row in rows]

    def allreduce_peers(self, program):
        """The peers that are installed: transport -> its command for a number of ranks. Compiles the
        program for Open MPI."""
        commands = {}
        if os.path.exists(self.args.gloo) and not support.missing_modules(self.args.peer_python):
            commands["gloo"] = lambda ranks: [
                self.args.peer_python, "-m", "torch.distributed.run", "--standalone",
                "--nproc_per_node", str(ranks), self.args.gloo]
        if os.path.exists(self.args.mpi) and shutil.which("mpicc"):
            subprocess.run(["mpicc", "-O3", self.args.mpi, "-o", program], check=True)
            for transport, links in (("mpi shm", "^tcp"), ("mpi tcp", "self,tcp")):
                commands[transport] = functools.partial(mpirun, program, links)
        for transport in ALLREDUCE_PEERS:
            if transport not in commands:
                print(f"allreduce: without {transport}: not installed", file=sys.stderr)
        return commands

    def scaling(self):
        if os.geteuid() != 0:
            print("scaling: left out, needs root", file=sys.stderr)
            return
        results = Results("scaling", self.commit)
        for (text, host_speed), (hook, streams) in itertools.product(SCALING, SCALING_EXCHANGES):
            shape = step_vs_pytorch.parse_shape(text)
            key = {**shape, "threads": self.threads, "dtype": "bf16", "link": SCALING_LINK,
                   "ddp_comm_hook": hook, "ddp_streams": streams, "host_speed": host_speed}
            if not any(self.due(results, {**key, "nodes": nodes}) for nodes in SCALING_NODES):
                continue
            said = self.call("scaling", *self.workload(shape), "--link", SCALING_LINK,
                             "--ddp_comm_hook", hook, "--ddp_streams", streams,
                             "--host_speed", host_speed,
                             "--nodes", ",".join(str(nodes) for nodes in SCALING_NODES),
                             "--repetitions", min(3, self.args.repetitions))
            for row in scaling_rows(said):
                results.put({**key, "nodes": row.pop("nodes")}, row)
            print(f"scaling: {key}", file=sys.stderr)

    def start(self):
        data = pathlib.Path(self.args.data) / "glue" / "MRPC"
        if not data.exists():
            print(f"start: left out, no {data}", file=sys.stderr)
            return
        results = Results("start", self.commit)
        with tempfile.TemporaryDirectory() as folder:
            bert_base = pathlib.Path(folder) / "bert-base, random weights"
            random_model.write_model(bert_base, pathlib.Path(self.args.model) / "vocab.txt")
            for model in (pathlib.Path(self.args.model), bert_base):
                key = {"model": model.name, "task": "mrpc", "threads": self.threads}
                self.measure(results, key, lambda: self.figures(key, self.call(
                    "start", f"--model_name_or_path={model}", "--task_name=mrpc",
                    f"--data_dir={data}", "--per_device_train_batch_size=8",
                    f"--threads={self.threads}")))

    def memory(self):
        results = Results("memory", self.commit)
        for text, recomputes in itertools.product(MEMORY, (False, True)):
            shape = step_vs_pytorch.parse_shape(text)
            key = {**shape, "threads": self.threads, "dtype": "bf16",
                   "gradient_checkpointing": recomputes}
            words = ["--gradient_checkpointing"] if recomputes else []
            self.measure(results, key, lambda: self.figures(
                key, self.call("step", *self.workload(shape), "--steps", 5, *words)))


def contexts(path):
    """The contexts of a SQuAD file, one per line."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return "\n".join(
        " ".join(paragraph["context"].split())
        for article in found["data"]
        for paragraph in article["paragraphs"]
    )


TOKENIZERS = """
import sys, time, statistics, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
tokenizer.no_truncation()
tokenizer.no_padding()
content = open(sys.argv[2], encoding="utf-8").read()
lines = content.split("\\n")
times = []
for _ in range(4):
    begin = time.perf_counter()
    tokenizer.encode_batch(lines, add_special_tokens=False)
    times.append(time.perf_counter() - begin)
print(len(content.encode()) / statistics.median(times[1:]) / 1e6)
"""


def tokenizers_version(python):
    """({"tokenizers": version}, "") or ({}, why there is none)."""
    done = subprocess.run([python, "-c", "import tokenizers; print(tokenizers.__version__)"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return {}, done.stderr.strip().splitlines()[-1]
    return {"tokenizers": done.stdout.strip()}, ""


def tokenizers_rate(python, model, text, threads):
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    return float(subprocess.run([python, "-c", TOKENIZERS, model, str(text)], check=True,
                                capture_output=True, text=True, env=environment).stdout)


def scaling_rows(said):
    """A row for each number of nodes."""
    common = {name: said[name] for name in ("isa", "slowdown", "repetitions")}
    return [
        {**common, **row,
         "published": [other for other in said["published"] if other["nodes"] == row["nodes"]]}
        for row in said["nodes"]
    ]


def mpirun(program, links, ranks):
    """The command that runs `program` with these transports of Open MPI."""
    # Open MPI refuses more ranks than cores without the flag.
    more_than_cores = ["--oversubscribe"] if ranks > os.cpu_count() else []
    return ["mpirun", "--allow-run-as-root", *more_than_cores, "-np", str(ranks), "--mca", "pml", "ob1",
            "--mca", "btl", links, str(program)]


def peer_rates(said):
    """GiB/s in the lines "gloo 2 ranks 25 MB 31.20 ms algbw 0.78 GB/s" of the scripts of the peers.
    Of the two rounded numbers, the larger one is more precise."""
    return [float(megabytes) / 1.024 / float(ms) if float(ms) > float(rate) else float(rate)
            for megabytes, ms, rate in
            re.findall(r"\d+ ranks ([\d.]+) MB ([\d.]+) ms algbw ([\d.]+) GB/s", said)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", required=True, help="model directory, for tokenize and start")
    parser.add_argument("--data", default="../shared/data", help="directory with glue and squad")
    parser.add_argument("--kinds", nargs="+", choices=KEYS, default=list(KEYS), metavar="KIND",
                        help=f"of {', '.join(KEYS)}")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2],
                        help="steps, layers and start use the largest")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--profile-steps", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=40, help="of exactness")
    parser.add_argument("--lengths", help="file with real lengths, for attention, layers and profile")
    parser.add_argument("--rounds", type=int, default=5, help="of allreduce")
    parser.add_argument("--gloo", default="../shared/peers/gloo_allreduce.py")
    parser.add_argument("--mpi", default="../shared/peers/mpi_allreduce.c")
    step_vs_pytorch.add_arguments(parser)
    args = parser.parse_args()
    bench = Bench(args, commit_of(args.worker, args.allow_dirty))
    for kind in args.kinds:
        getattr(bench, kind)()
    for kind in args.kinds:
        files = tables.read_files(support.results_folder(), kind)
        print(f"\n{tables.TITLES[kind]}\n{tables.table(kind, files)}")


if __name__ == "__main__":
    main()
