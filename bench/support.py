"""Shared helpers of the benchmark scripts: GLUE files, the worker, CPU and version names."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import tempfile

# Label column, then the text columns, as in common/contract/tasks.cpp; indexes without a header.
COLUMNS = {
    "cola": (1, 3),
    "mrpc": ("Quality", "#1 String", "#2 String"),
    "rte": ("label", "sentence1", "sentence2"),
    "sst2": ("label", "sentence"),
}
FOLDERS = {"cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "sst2": "SST-2"}
LABELS = {"rte": ["entailment", "not_entailment"]}  # where the files have names


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


def cpu_name():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    fields = dict(
        tuple(part.strip() for part in line.split(":", 1))
        for line in info.split("\n\n")[0].splitlines()
        if ":" in line
    )
    # Virtual machines may hide the model name; family and model numbers identify the CPU.
    return "{} (family {}, model {}), {} CPUs".format(
        fields.get("model name", "unknown"),
        fields.get("cpu family", "?"),
        fields.get("model", "?"),
        os.cpu_count(),
    )


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


def with_tcmalloc(environment):
    """Preloads tcmalloc if it is installed, because PyTorch is much faster with it."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/libtcmalloc.so.4"))
    found += sorted(pathlib.Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    return {**environment, "LD_PRELOAD": str(found[0])} if found else dict(environment)


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


def read_json(path, otherwise=None):
    path = pathlib.Path(path)
    return json.loads(path.read_text()) if path.exists() else otherwise


def write_json(path, value):
    """Writes a temporary file and renames it, so that readers never see a partial file."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


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
