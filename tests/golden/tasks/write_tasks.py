#!/usr/bin/env python3
"""Writes tasks.json: how `datasets` and run_glue read own files, and metrics of SciPy and scikit-learn.

    write_tasks.py > tasks.json

  own_files  per case: the files (name -> content), and what run_glue makes of them: "regression",
             "labels" in the order of their ids, "sentences" (columns of the training file), and per
             split the texts and the label ids or values
  metrics    predictions and true values as float32, or classes, and the metrics as float64
"""
import json
import platform
import sys
import tempfile
from pathlib import Path

import datasets
import numpy as np
import scipy
import scipy.stats
import sklearn
import sklearn.metrics

CASES = {
    "csv_strings": {
        "train.csv": "text,label\n\"a, b\",pear\n\"x \"\"b\"\"\",Zebra\nb,apple\na,\"pear\"\n",
        "dev.csv": "label,text\napple,\"a\nb\"\nZebra,x\n"},
    "csv_integers": {
        "train.csv": "label,text\n10,a\n-1,b\n9,x\n10,b\n", "dev.csv": "text,label\na,9\nb,-1\n"},
    "csv_reals": {
        "train.csv": "text,label\na,1\nb,2.5\nx,-3e-1\n", "dev.csv": "text,label\na,3.25\nb,0.1\n"},
    "csv_booleans": {
        "train.csv": "text,label\na,True\nb,False\n", "dev.csv": "text,label\na,False\n"},
    "csv_mixed": {
        "train.csv": "text,label\na,1\nb,one\nx,2.5\n", "dev.csv": "text,label\na,one\n"},
    "csv_sentence1_and_sentence2": {
        "train.csv": "id,sentence2,label,sentence1\n0,b,1,a\n1,x,0,a\n",
        "dev.csv": "sentence1,sentence2,label\nb,a,0\n"},
    "csv_first_two_columns": {
        "train.csv": "question,label,answer,source\na,1,b,x\nb,0,x,a\n",
        "dev.csv": "source,answer,question,label\nx,a,b,1\n"},
    "csv_sentence1_alone": {
        "train.csv": "label,sentence1\n1,a\n0,b\n", "dev.csv": "label,sentence1\n1,x\n"},
    "csv_quotes_inside_fields": {
        "train.csv": "text,label\na \"b\" x,1\nb\"\",0\n", "dev.csv": "text,label\n\"\"\"a\",1\n"},
    "csv_line_ends": {
        "train.csv": "text,label\r\na,1\r\n\r\nb,0", "dev.csv": "text,label\n\na,1\n\n"},
    "json_lines": {
        "train.json": '{"text": "a", "label": "no"}\n{"label": "yes", "text": "b \\u00e9"}\n',
        "dev.json": '{"text": "x", "label": "yes"}\n'},
    "json_list": {
        "train.json": '[{"label": 3, "a": "x", "b": "b"},\n {"label": 1, "a": "a", "b": "x"}]',
        "dev.json": '[{"b": "a", "a": "b", "label": 1}]'},
    "json_data": {
        "train.json": '{"version": "1", "data": [{"text": "a", "label": 1}, {"text": "b", "label": 0}]}',
        "dev.json": '{"data": [{"text": "x", "label": 0}]}'},
    "json_reals": {
        "train.json": '{"text": "a", "label": 1}\n{"text": "b", "label": 2.0}\n',
        "dev.json": '{"text": "x", "label": 0.5}\n'},
    "json_digits": {
        "train.json": '{"text": "a", "label": "10"}\n{"text": "b", "label": "9"}\n',
        "dev.json": '{"text": "x", "label": "9"}\n'},
    "json_booleans": {
        "train.json": '{"text": "a", "label": true}\n{"text": "b", "label": false}\n',
        "dev.json": '{"text": "x", "label": true}\n'},
}


def load(directory, name, files):
    form = "json" if name.startswith("json") else "csv"
    options = {"field": "data"} if name == "json_data" else {}
    paths = {}
    for file, content in files.items():
        (directory / file).write_bytes(content.encode())
        paths[file.split(".")[0]] = str(directory / file)
    return datasets.load_dataset(form, data_files=paths, cache_dir=str(directory / "cache"), **options)


def read_case(name, files):
    with tempfile.TemporaryDirectory() as directory:
        data = load(Path(directory), name, files)
        train = data["train"]
        regression = train.features["label"].dtype in ("float32", "float64")
        labels = [] if regression else sorted(train.unique("label"))
        names = [column for column in train.column_names if column != "label"]
        pair = {"sentence1", "sentence2"} <= set(names)
        sentences = ["sentence1", "sentence2"] if pair else names[:2]
        result = {"files": files, "regression": regression, "labels": [str(l) for l in labels],
                  "sentences": sentences, "splits": {}}
        for split, rows in data.items():
            result["splits"][split] = [
                {"texts": [row[s] for s in sentences],
                 "label": row["label"] if regression else labels.index(row["label"])} for row in rows]
        return result


def write_metrics():
    random = np.random.default_rng(1)
    cases = []
    for n, steps in ((2, 4), (10, 3), (100, 8), (1500, 21), (1500, 100000)):
        values = (random.integers(0, steps, n) * 5 / steps).astype(np.float32)
        values[0] += 1  # not constant
        noise = random.normal(0, 1, n)
        predictions = np.round((values + noise) * 16).astype(np.float32) / np.float32(16)
        x, y = predictions.astype(np.float64), values.astype(np.float64)
        cases.append({"predictions": predictions.tolist(), "values": values.tolist(),
                      "pearson": float(scipy.stats.pearsonr(x, y).statistic),
                      "spearmanr": float(scipy.stats.spearmanr(x, y).statistic),
                      "mse": float(sklearn.metrics.mean_squared_error(y, x))})
    classes = []
    for n, count in ((20, 2), (408, 2), (1043, 2), (500, 3)):
        labels = random.integers(0, count, n)
        predictions = np.where(random.random(n) < 0.7, labels, random.integers(0, count, n))
        case = {"predictions": predictions.tolist(), "labels": labels.tolist(),
                "accuracy": float(sklearn.metrics.accuracy_score(labels, predictions)),
                "matthews_correlation": float(sklearn.metrics.matthews_corrcoef(labels, predictions))}
        if count == 2:
            case["f1"] = float(sklearn.metrics.f1_score(labels, predictions))
        classes.append(case)
    return {"regression": cases, "classification": classes}


def main():
    datasets.disable_progress_bars()
    json.dump({
        "written_by": "write_tasks.py",
        "versions": {"datasets": datasets.__version__, "scipy": scipy.__version__,
                     "sklearn": sklearn.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "own_files": {name: read_case(name, files) for name, files in CASES.items()},
        "metrics": write_metrics(),
    }, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
