"""Extracts the medians of a tilewright-kernel-bench run: table.py RUN.json RESULT.json

RUN.json is the --benchmark_out file of a run with --benchmark_repetitions. RESULT.json keeps the
table's values and, of the machine, only the CPU name. Prints a table for the fastest ISA.
"""
import json
import sys


def medians(run):
    for entry in run["benchmarks"]:
        if entry.get("aggregate_name") != "median":
            continue
        kernel, model, isa, threads = entry["run_name"].split("/")[:4]
        rate, bound = ("GFLOP/s", "peak") if "GFLOP/s" in entry else ("GB/s", "memcpy")
        yield {"kernel": kernel, "model": model, "isa": isa, "threads": int(threads),
               "microseconds": round(entry["real_time"], 2), "unit": rate,
               "rate": round(entry[rate], 2), "bound": bound,
               "share": round(entry["of_" + bound], 3)}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    rows = list(medians(run))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write('{"cpu": %s, "kernels": [\n' % json.dumps(run["context"]["cpu"]))
        file.write(",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    best = rows[-1]["isa"]
    cells = {}
    for row in rows:
        if row["isa"] == best:
            cells.setdefault(row["kernel"], {})[row["model"], row["threads"]] = row
    columns = [("minilm", 1), ("minilm", 2), ("bert-base", 1), ("bert-base", 2)]
    print("| kernel | unit | MiniLM, 1 thread | 2 threads | BERT-base, 1 thread | 2 threads |")
    print("|---|---|---|---|---|---|")
    for kernel, by in cells.items():
        figures = [f"{by[c]['rate']:.0f} = {by[c]['share']:.2f}" for c in columns]
        unit = by[columns[0]]["unit"]
        print(f"| {kernel} | {unit} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
