"""Rows of measurements, in one file for each kind and CPU model.

A file is {"cpu": ..., "rows": [...]}. A row consists of its key (the fields of KEYS[kind], which say
what was measured), its origin (date, commit, versions) and its figures. A new measurement replaces
the row with its key and keeps all others.
"""

import datetime
import pathlib
import re
import subprocess
import sys

import support
import tables

KEYS = {
    "peak": ("isa", "dtype", "threads"),
    "gemm": ("rows", "k", "n", "operation", "threads", "dtype", "shards"),
    "attention": ("examples", "tokens", "heads", "head_size", "threads", "dtype"),
    "layers": ("model", "batch", "length", "threads", "dtype"),
    "step": ("model", "task", "batch", "length", "threads", "dtype", "peer"),
    "training": ("task", "padding", "model", "threads", "dtype"),
    "profile": ("model", "task", "batch", "length", "threads", "dtype"),
    "exactness": ("model", "task", "batch", "length", "threads", "dtype", "shards"),
    "adamw": ("model", "threads", "dtype"),
    "checkpoint": ("model", "threads", "dtype"),
    "tokenize": ("file", "threads"),
    "allreduce": ("ranks", "megabytes", "transport"),
    "scaling": ("model", "task", "batch", "length", "threads", "dtype", "link", "ddp_comm_hook",
                "ddp_streams", "host_speed", "nodes"),
    "start": ("model", "task", "threads"),
    "memory": ("model", "task", "batch", "length", "threads", "dtype", "gradient_checkpointing"),
}

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent


def git(*words):
    return subprocess.run(
        ["git", *words], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.strip()


def check_commit(worker_version, head, changes, allow_dirty):
    """The commit that a measurement belongs to: (commit, "") or (None, why it is refused).

    `worker_version` is the output of --version, `changes` that of `git status --porcelain`.
    """
    built = re.search(r"\(([0-9a-f]+)(-dirty)?\)", worker_version)
    if built is None or not (head.startswith(built[1]) or built[1].startswith(head)):
        return None, f"the worker is {worker_version}, expected a build of {head}: run make build"
    if not changes:
        return head, ""
    if allow_dirty:
        return head + "-dirty", ""
    return None, (
        "the tree has uncommitted changes, so that no commit describes what is measured: commit "
        f"them, or mark the rows with --allow-dirty\n{changes}"
    )


def commit_of(worker, allow_dirty):
    """As check_commit for this checkout, or exits. The results themselves may have changed."""
    changes = git("status", "--porcelain", "--", ".", ":!bench/results", ":!bench/README.md")
    commit, refusal = check_commit(
        support.worker_version(worker), git("rev-parse", "--short=12", "HEAD"), changes, allow_dirty
    )
    if commit is None:
        sys.exit(refusal)
    return commit


class Results:
    """The rows of one kind and of this machine's CPU model."""

    def __init__(self, kind, commit, versions=None, path=None):
        self.kind = kind
        self.path = path or support.results_file(kind)
        self.origin = {
            "date": datetime.date.today().isoformat(),
            "commit": commit,
            "versions": versions or {},
        }

    def key(self, row):
        return tuple(row[field] for field in KEYS[self.kind])

    def rows(self):
        return support.read_json(self.path, {"rows": []})["rows"]

    def has(self, key):
        """Whether this commit has measured the row already, so that a repetition resumes."""
        wanted = self.key(key)
        return any(
            self.key(row) == wanted and row["commit"] == self.origin["commit"]
            for row in self.rows()
        )

    def put(self, key, figures):
        """Replaces the row with this key, or adds it, and writes the tables."""
        row = {**key, **self.origin, **figures}
        with support.locked(self.path):
            rows = self.rows()
            places = [i for i, old in enumerate(rows) if self.key(old) == self.key(row)]
            if places:
                rows[places[0]] = row
            else:
                rows.append(row)
            support.write_json(self.path, {"cpu": support.cpu_name(), "rows": rows})
            tables.write_page(self.path.parent)
        return row
