"""Shared helpers of the benchmark scripts: GLUE files, the worker, CPU and version names."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# Label column, then the text columns, as in common/contract/tasks.cpp; indexes without a header.
COLUMNS = {
    "cola": (1, 3),
    "mrpc": ("Quality", "#1 String", "#2 String"),
    "rte": ("label", "sentence1", "sentence2"),
    "sst2": ("label", "sentence"),
}
FOLDERS = {"cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "sst2": "SST-2"}
LABELS = {"rte": ["entailment", "not_entailment"]}  # where the files have names
NO_TCMALLOC = "tcmalloc is missing (Debian's libtcmalloc-minimal4), without which PyTorch is slower"
# Instruction set -> variables that hold both sides to it.
HELD_TO = {
    "avx2": {"TILEWRIGHT_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2",
             "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"TILEWRIGHT_ISA": "avx512", "ATEN_CPU_CAPABILITY": "avx512",
               "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def glue_folder(data, task):
    return pathlib.Path(data) / "glue" / FOLDERS[task]


def read_glue(folder, task, split, limit=None):
    """Reads labels and texts (one or two columns) of GLUE's TSV files: unquoted, BOM allowed."""
    path = pathlib.Path(folder) / f"{split}.tsv"
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    places = COLUMNS[task]
    if isinstance(places[0], str):
        header = lines.pop(0).rstrip("\r").split("\t")
        places = [header.index(name) for name in places]
    rows = [line.rstrip("\r").split("\t") for line in lines if line][:limit]
    names = LABELS.get(task)
    labels = [names.index(row[places[0]]) if names else int(row[places[0]]) for row in rows]
    texts = [[row[place] for row in rows] for place in places[1:]]
    return labels, texts


# CPU models by vendor, family and model number: the short name in the names of result files, the name in tables.
CPUS = {
    ("AuthenticAMD", "25", "1"): ("zen3", "Zen 3"),
    ("AuthenticAMD", "25", "17"): ("zen4", "Zen 4"),
    ("AuthenticAMD", "26", "2"): ("zen5", "Zen 5"),
    ("GenuineIntel", "6", "167"): ("xeon", "Xeon (AMX)"),
}


def cpu_fields(info=None):
    """The fields of the first CPU in /proc/cpuinfo."""
    info = info or pathlib.Path("/proc/cpuinfo").read_text()
    return dict(
        tuple(part.strip() for part in line.split(":", 1))
        for line in info.split("\n\n")[0].splitlines()
        if ":" in line
    )


def cpu_name():
    fields = cpu_fields()
    # Virtual machines may hide the model name; family and model numbers identify the CPU.
    return "{} (family {}, model {}), {} CPUs".format(
        fields.get("model name", "unknown"),
        fields.get("cpu family", "?"),
        fields.get("model", "?"),
        os.cpu_count(),
    )


def cpu_model(fields=None):
    """The CPU model as it occurs in file names: zen5, or amd-25-1 for one without a short name."""
    fields = fields or cpu_fields()
    key = tuple(fields.get(name, "unknown") for name in ("vendor_id", "cpu family", "model"))
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(key[0], key[0].lower())
    return CPUS[key][0] if key in CPUS else f"{vendor}-{key[1]}-{key[2]}"


def data_type():
    """The data type of a training by default: bf16 if the CPU has instructions for it."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    return "bf16" if "avx512_bf16" in info or "amx_bf16" in info else "fp32"


def peer_versions():
    import torch
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__}


def worker_version(worker):
    return subprocess.run(
        [worker, "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()


def tcmalloc():
    """The path of tcmalloc; None if it is not installed."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/libtcmalloc.so.4"))
    found += sorted(pathlib.Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return found[0] if found else None


def with_tcmalloc(environment):
    """Preloads tcmalloc, which it requires, because PyTorch is much faster with it."""
    path = tcmalloc() or sys.exit(NO_TCMALLOC)
    return {**environment, "LD_PRELOAD": str(path)}


def missing_modules(python):
    """Why torch and transformers cannot be imported; "" if they can."""
    done = subprocess.run(
        [python, "-c", "import torch, transformers"], capture_output=True, text=True
    )
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def missing_pytorch(python):
    """Why computations of PyTorch cannot be measured; "" if they can."""
    return missing_modules(python) or ("" if tcmalloc() else NO_TCMALLOC)


def flags_of(options):
    """Formats options as --name=value, with booleans as true and false."""
    spell = lambda value: str(value).lower() if isinstance(value, bool) else str(value)
    return [f"--{name}={spell(value)}" for name, value in options.items()]


def train(worker, **options):
    """Runs `tilewright-worker train` to completion, with its own stdout and stderr. Returns its
    peak memory in MiB."""
    command = [worker, "train", *flags_of(options)]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss / 1024


def wait_until(condition, seconds, running):
    """Polls while running(). Returns the value of condition(), or None if it was never true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and running():
        if found := condition():
            return found
        time.sleep(0.02)
    return None


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def write_job_key(path):
    """Writes a new secret of a job, which only this user can read, and returns its path."""
    path.write_text(os.urandom(32).hex())
    path.chmod(0o600)
    return path


def train_job(args, name, elastic_policy, replicas, **trainer):
    """A TrainJob on args.model and args.data; its volume "output" is the directory of `tilewright up`."""
    local = {"models": args.model, "data": args.data, "output": "."}
    return {
        "apiVersion": "tilewright.dev/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {
            "elasticPolicy": elastic_policy,
            "trainer": {"model": "models:.", "data": "data:.", "do_eval": False, **trainer},
            "worker": {"replicas": replicas, "image": "tilewright-worker",
                       "resources": {"cpu": 1}},
            "volumes": [{"name": volume, "local": str(path)} for volume, path in local.items()],
        },
    }


def add_paths(parser, data):
    """Adds the arguments of a program that trains with both programs; their values are absolute.
    `data`: what the data directory holds."""
    for name, text in (("worker", "path of tilewright-worker"), ("tool", "path of tilewright"),
                       ("model", "model directory"), ("data", data)):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(),
                            required=True, help=text)


def read_json(path, otherwise=None):
    path = pathlib.Path(path)
    return json.loads(path.read_text()) if path.exists() else otherwise


def write_file(path, text):
    """Writes a temporary file and renames it, so that readers never see a partial file."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def write_json(path, value):
    write_file(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def locked(path):
    """Holds an exclusive lock on the directory of the results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def results_folder():
    return pathlib.Path(__file__).resolve().parent / "results"


def results_file(kind):
    """Results have one file for each kind of measurement and CPU model: results/step-zen5.json."""
    return results_folder() / f"{kind}-{cpu_model()}.json"


if __name__ == "__main__":  # for the Makefile
    print(results_file(sys.argv[1]))
