"""Writes bench/results/README.md: the rows of bench/results/*.json of every CPU model as tables."""

import pathlib

import support

CPU_NAMES = dict(support.CPUS.values())
TITLES = {
    "peak": "Peak",
    "gemm": "Linear layers",
    "attention": "Attention",
    "layers": "Encoder layer",
    "step": "Training step",
    "training": "Trainings and evaluations",
    "profile": "Profiles",
    "exactness": "Cost of exact mode in one process",
    "adamw": "AdamW and packing of weights",
    "checkpoint": "Checkpoints",
    "tokenize": "Tokenizer",
    "allreduce": "All-reduce",
    "scaling": "Scaling to several nodes (emulated)",
    "start": "Start-up of a training",
    "memory": "Memory of a training step",
}


def percent(share):
    return "" if share is None else f"{100 * share:.0f} %"


def workload(row):
    task = {"cls": "", "qa": " QA"}[row.get("task", "cls")]
    return f"{row['model']}{task} {row['batch']} x {row['length']}"


def seconds(value):
    return "" if value is None else f"{value:.3f}"


def share_of(row, name):
    return percent(row[name].get("share_of_peak")) if name in row else ""


def step_cells(row):
    tilewright, pytorch = row["tilewright"], row.get("pytorch", {})
    speed = row.get("speed_up")
    return [
        workload(row) + (f" ({row['note']})" if "note" in row else ""),
        row["dtype"],
        row["threads"],
        seconds(tilewright["median_seconds"]),
        share_of(row, "tilewright"),
        seconds(pytorch.get("median_seconds")),
        share_of(row, "pytorch"),
        f"{speed:.2f} x" if speed else "",
    ]


def training_cells(row):
    tilewright, peer = row["tilewright"], row["transformers"]
    cells = [row["task"], row["padding"], row["model"], row["dtype"], row["threads"]]
    for name, speed_up in (("train", "speed_up"), ("eval", "eval_speed_up")):
        median = f"median_{name}_seconds"
        cells += [f"{tilewright[median]:.1f}", f"{peer[median]:.1f}", f"{row[speed_up]:.2f} x"]
    return cells


def interval(row):
    if "ratio_low" not in row:
        return ""
    return f"{row['ratio_low']:.4f} to {row['ratio_high']:.4f}"


def exchange_cells(row):
    return [seconds(row["exchange_seconds"]), percent(row["hidden_share"]),
            f"{row['speedup']:.2f} x", percent(row["efficiency"]),
            seconds(row["communication_cpu_seconds"]), percent(row["shared_cores_efficiency"]),
            percent(row["machine_load"])]


def published(row):
    """What others have published for this number of nodes: "1.7 x (MRPC)"."""
    return ", ".join(f"{other['speedup']:.1f} x ({other['what'].split(',')[0]})"
                     for other in row["published"])


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else ""


# Headers and cells of a row, without CPU, date and commit.
COLUMNS = {
    "peak": (
        ["instruction set", "type", "threads", "GFLOP/s", "GB/s"],
        lambda r: [r["isa"], r["dtype"], r["threads"],
                   f"{r['gflops']:.0f}" if "gflops" in r else "",
                   f"{r['gigabytes_per_second']:.1f}" if "gigabytes_per_second" in r else ""],
    ),
    "gemm": (
        ["rows x K x N", "product", "threads", "GFLOP/s", "of peak", "oneDNN", "ratio"],
        lambda r: [f"{r['rows']} x {r['k']} x {r['n']}", r["operation"], r["threads"],
                   f"{r['gflops']:.0f}", percent(r["share_of_peak"]),
                   f"{r['onednn_gflops']:.0f}" if "onednn_gflops" in r else "",
                   ratio(r["gflops"], r.get("onednn_gflops"))],
    ),
    "attention": (
        ["examples, tokens, heads x size", "threads", "forward", "backward", "both GFLOP/s",
         "of peak"],
        lambda r: [f"{r['examples']}, {r['tokens']}, {r['heads']} x {r['head_size']}", r["threads"],
                   f"{r['forward_gflops']:.0f}", f"{r['backward_gflops']:.0f}",
                   f"{r['gflops']:.0f}", percent(r["share_of_peak"])],
    ),
    "layers": (
        ["layer of", "threads", "forward ms", "backward ms", "GFLOP/s", "of peak"],
        lambda r: [workload(r), r["threads"], f"{1e3 * r['forward_seconds']:.2f}",
                   f"{1e3 * r['backward_seconds']:.2f}", f"{r['gflops']:.0f}",
                   percent(r["share_of_peak"])],
    ),
    "step": (
        ["step", "type", "threads", "Tilewright s", "of peak", "PyTorch s", "of peak", "speedup"],
        step_cells,
    ),
    "training": (
        ["task", "padding of transformers", "model", "type", "threads", "training s",
         "transformers s", "speedup", "evaluation s", "transformers s", "speedup"],
        training_cells,
    ),
    "profile": (
        ["step", "threads", "ms", "largest kernels", "profiled / plain", "95 % interval", "plot"],
        lambda r: [workload(r), r["threads"], f"{1e3 * r['seconds']:.1f}",
                   ", ".join(f"{k['kernel']} {k.get('shape', '')}".strip()
                             + f" {percent(k['share_of_step'])}" for k in r["kernels"][:3]),
                   f"{r['median_ratio']:.4f}", interval(r), f"[svg]({r['plot']})"],
    ),
    "exactness": (
        ["step", "threads", "shards", "exact s", "inexact s", "ratio", "95 % interval", "pairs"],
        lambda r: [workload(r), r["threads"], r["shards"], seconds(r["median_exact_seconds"]),
                   seconds(r["median_inexact_seconds"]), f"{r['median_ratio']:.4f}", interval(r),
                   len(r["exact_seconds"])],
    ),
    "adamw": (
        ["model", "threads", "ms", "GB/s", "of memcpy", "working set MB", "last-level cache MB"],
        lambda r: [r["model"], r["threads"], f"{1e3 * r['median_seconds']:.1f}",
                   f"{r['gigabytes_per_second']:.1f}",
                   percent(r["gigabytes_per_second"] / r["copy_gigabytes_per_second"]),
                   f"{r['working_set_bytes'] / 1e6:.0f}", f"{r['last_cache_bytes'] / 1e6:.0f}"],
    ),
    "checkpoint": (
        ["model", "threads", "GB", "stall ms", "written in s", "steps slower by s",
         "stall without the copy s", "first touch s"],
        lambda r: [r["model"], r["threads"], f"{r['bytes'] / 1e9:.2f}",
                   f"{1e3 * r['median_copy_seconds']:.0f}", f"{r['median_write_seconds']:.2f}",
                   f"{r['median_slowdown_seconds']:.2f}",
                   f"{r['median_seconds_between_steps']:.2f}", f"{r['first_touch_seconds']:.2f}"],
    ),
    "tokenize": (
        ["text", "threads", "MB/s", "tokenizers MB/s", "ratio"],
        lambda r: [r["file"], r["threads"], f"{r['megabytes_per_second']:.1f}",
                   f"{r['peer_megabytes_per_second']:.1f}"
                   if "peer_megabytes_per_second" in r else "",
                   ratio(r["megabytes_per_second"], r.get("peer_megabytes_per_second"))],
    ),
    "allreduce": (
        ["ranks", "MiB", "transport", "ms", "GiB/s"],
        lambda r: [r["ranks"], f"{r['megabytes']:g}", r["transport"], f"{r['milliseconds']:.3f}",
                   f"{r['gigabytes_per_second']:.2f}"],
    ),
    "scaling": (
        ["step", "link", "--ddp_comm_hook", "--ddp_streams", "host speed", "slowed", "nodes", "step s", "exchange s",
         "hidden", "speedup", "efficiency", "communication CPU s", "efficiency on shared cores", "load",
         "published for other hosts"],
        lambda r: [workload(r), r["link"], r["ddp_comm_hook"], r["ddp_streams"], f"{r['host_speed']:g}",
                   f"{r['slowdown']:g} x", r["nodes"], seconds(r["step_seconds"]),
                   *(exchange_cells(r) if r["nodes"] > 1 else [""] * len(exchange_cells(r))),
                   published(r)],
    ),
    "start": (
        ["model, task", "threads", "s until the first step ends"],
        lambda r: [f"{r['model']}, {r['task']}", r["threads"], seconds(r["seconds"])],
    ),
    "memory": (
        ["step", "threads", "activations", "peak GB", "s"],
        lambda r: [workload(r), r["threads"],
                   "computed again" if r["gradient_checkpointing"] else "kept",
                   f"{r['peak_memory_bytes'] / 1e9:.2f}", seconds(r["median_seconds"])],
    ),
}


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(kind, files):
    """`files`: CPU model -> rows. Every row says on which CPU, when and at which commit it was last
    measured."""
    headers, cells = COLUMNS[kind]
    lines = [line(["CPU", *headers, "measured", "commit"])]
    lines.append("|" + "---|" * (len(headers) + 3))
    for model in sorted(files):
        for row in files[model]:
            origin = [row["date"], f"`{row['commit']}`" if row["commit"] else "not recorded"]
            lines.append(line([CPU_NAMES.get(model, model), *cells(row), *origin]))
    return "\n".join(lines)


def read_files(folder, kind):
    files = {}
    for path in sorted(pathlib.Path(folder).glob(f"{kind}-*.json")):
        files[path.stem[len(kind) + 1 :]] = support.read_json(path)["rows"]
    return files


def page(folder, kinds=TITLES):
    parts = [
        "# Results",
        "`make bench` writes this page from the JSON files in its directory. Each row was last measured on "
        "the CPU, day and commit that it names; `make bench` replaces the rows of the CPU on which "
        "it runs. Commits that end with -dirty had uncommitted changes. The meaning of the figures "
        "is in [the README of bench](../README.md).",
    ]
    for kind in kinds:
        files = read_files(folder, kind)
        if files:
            parts.append(f"## {TITLES[kind]}\n{table(kind, files)}")
            figures = sorted(pathlib.Path(folder).glob(f"{kind}-*.svg")) if kind == "step" else []
            parts += [f"![{figure.stem}]({figure.name})" for figure in figures]
    return "\n\n".join(parts) + "\n"


def write_page(folder):
    """Results writes it after every row, so that an interrupted run leaves tables as well."""
    support.write_file(pathlib.Path(folder) / "README.md", page(folder))


if __name__ == "__main__":
    write_page(support.results_folder())
