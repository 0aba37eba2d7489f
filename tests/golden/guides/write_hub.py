#!/usr/bin/env python3
"""Writes small models and data sets under the names of the CPU fine-tuning guides, as the hub has them.

    write_hub.py --out tests/golden/guides/data

  models/distilbert/distilbert-base-uncased
      DistilBERT in model.safetensors, with the tensors of the masked language model, tokenizer.json
      and vocab.txt
  models/google-bert/bert-base-uncased   BERT in three shards of safetensors with their index
  models/google-bert/bert-base-cased
      BERT in pytorch_model.bin, pickled, with LayerNorm's old names gamma and beta; vocab.txt only
  datasets/rajpurkar/squad, squad_v2   24 and 8 questions of examples/data/questions
  datasets/nyu-mll/glue
      every task: 40 rows to train, 8 to evaluate and 8 to predict (of mnli twice 8, of ax only 8 to
      predict), from examples/data/paraphrase; only the labels of mrpc and qqp have a meaning

The models have random weights of hidden size 32, 2 layers, 2 heads; their vocabularies are the
characters and frequent words of the data. Two runs with the same versions write the same
tensors and rows.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import shutil

import datasets
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertTokenizerFast,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertTokenizerFast,
)

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples/data"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
QUESTIONS = {"train": 24, "validation": 8}
PAIRS = {"train": 40, "validation": 8, "test": 8}


def questions(split):
    """Rows of the data set squad."""
    name = {"train": "train-v1.1.json", "validation": "dev-v1.1.json"}[split]
    rows = []
    for article in json.loads((EXAMPLES / "questions" / name).read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question["answers"]
                rows.append({
                    "id": question["id"],
                    "title": article["title"],
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": {
                        "text": [answer["text"] for answer in answers],
                        "answer_start": [answer["answer_start"] for answer in answers],
                    },
                })
    return rows[: QUESTIONS[split]]


def pairs():
    """Rows (sentence, sentence, label) of the paraphrase examples."""
    with open(EXAMPLES / "paraphrase/train.tsv", encoding="utf-8") as file:
        table = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(table)
        return [(row[3], row[4], int(row[0])) for row in table]


def write_squad(out):
    """squad, and squad_v2, in which every third question has no answer."""
    features = datasets.Features({
        "id": datasets.Value("string"),
        "title": datasets.Value("string"),
        "context": datasets.Value("string"),
        "question": datasets.Value("string"),
        "answers": datasets.Sequence({"text": datasets.Value("string"), "answer_start": datasets.Value("int32")}),
    })
    for name, config in (("squad", "plain_text"), ("squad_v2", "squad_v2")):
        folder = out / "datasets/rajpurkar" / name / config
        folder.mkdir(parents=True)
        for split in QUESTIONS:
            rows = questions(split)
            if name == "squad_v2":
                for row in rows[::3]:
                    row["answers"] = {"text": [], "answer_start": []}
            table = datasets.Dataset.from_list(rows, features=features)
            table.to_parquet(folder / f"{split}-00000-of-00001.parquet")


# Of each configuration: its columns with sentences and the names of its labels; stsb has numbers.
GLUE = {
    "ax": (("premise", "hypothesis"), ["entailment", "neutral", "contradiction"]),
    "cola": (("sentence",), ["unacceptable", "acceptable"]),
    "mnli": (("premise", "hypothesis"), ["entailment", "neutral", "contradiction"]),
    "mrpc": (("sentence1", "sentence2"), ["not_equivalent", "equivalent"]),
    "qnli": (("question", "sentence"), ["entailment", "not_entailment"]),
    "qqp": (("question1", "question2"), ["not_duplicate", "duplicate"]),
    "rte": (("sentence1", "sentence2"), ["entailment", "not_entailment"]),
    "sst2": (("sentence",), ["negative", "positive"]),
    "stsb": (("sentence1", "sentence2"), None),
    "wnli": (("sentence1", "sentence2"), ["not_entailment", "entailment"]),
}
SPLITS = {
    "ax": ["test"],
    "mnli": ["train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"],
}


def write_glue(out):
    """The rows of all configurations; test rows have the label -1, as on the hub."""
    source = pairs()
    for name, (sentences, classes) in GLUE.items():
        folder = out / "datasets/nyu-mll/glue" / name
        folder.mkdir(parents=True)
        features = datasets.Features({
            **{column: datasets.Value("string") for column in sentences},
            "label": datasets.ClassLabel(names=classes) if classes else datasets.Value("float32"),
            "idx": datasets.Value("int32"),
        })

        def label(i):
            if name == "mnli":
                return i % 3
            if name == "stsb":
                return (5 if source[i][2] else 1) - i % 4 * 0.2
            return source[i][2]

        first = 0
        for split in SPLITS.get(name, ["train", "validation", "test"]):
            length = PAIRS[split.split("_")[0]]
            assert first + length <= len(source)
            rows = [
                {**dict(zip(sentences, source[i])), "label": -1 if split.startswith("test") else label(i),
                 "idx": i - first}
                for i in range(first, first + length)
            ]
            table = datasets.Dataset.from_list(rows, features=features)
            table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
            first += length


def vocabulary(lower_case):
    """Special tokens, every character alone and inside a word, and the words seen three times."""
    texts = [row[key] for split in QUESTIONS for row in questions(split) for key in ("context", "question")]
    texts += [sentence for pair in pairs() for sentence in pair[:2]]
    text = "\n".join(texts)
    if lower_case:
        text = text.lower()
    characters = sorted(set(text) - {" ", "\n"})
    words = collections.Counter(re.findall(r"\w+", text))
    frequent = sorted(word for word, seen in words.items() if seen >= 3 and len(word) > 1)
    return SPECIAL + characters + ["##" + c for c in characters if c.isalnum()] + frequent


def write_tokenizer(folder, tokenizer_class, lower_case):
    words = vocabulary(lower_case)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = tokenizer_class(str(folder / "vocab.txt"), do_lower_case=lower_case, model_max_length=512)
    tokenizer.save_pretrained(folder)
    return len(words)


def bert_config(size):
    return BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48
    )


def write_models(out):
    torch.manual_seed(1)
    folder = out / "models/distilbert/distilbert-base-uncased"
    folder.mkdir(parents=True)
    size = write_tokenizer(folder, DistilBertTokenizerFast, True)
    config = DistilBertConfig(vocab_size=size, dim=32, n_layers=2, n_heads=2, hidden_dim=48)
    DistilBertForMaskedLM(config).save_pretrained(folder)

    folder = out / "models/google-bert/bert-base-uncased"
    folder.mkdir(parents=True)
    size = write_tokenizer(folder, BertTokenizerFast, True)
    BertForMaskedLM(bert_config(size)).save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1

    # The file of the oldest models: pickled, LayerNorm with gamma and beta, no tokenizer.json.
    folder = out / "models/google-bert/bert-base-cased"
    folder.mkdir(parents=True)
    size = write_tokenizer(folder, BertTokenizerFast, False)
    (folder / "tokenizer.json").unlink()
    model = BertForPreTraining(bert_config(size))
    model.config.architectures = ["BertForPreTraining"]
    model.config.save_pretrained(folder)
    state = collections.OrderedDict(
        (name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"), tensor)
        for name, tensor in model.state_dict().items()
    )
    torch.save(state, folder / "pytorch_model.bin")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    write_models(out)
    write_squad(out)
    write_glue(out)


if __name__ == "__main__":
    main()
