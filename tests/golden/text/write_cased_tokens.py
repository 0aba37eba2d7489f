#!/usr/bin/env python3
"""Writes a cased vocabulary and the tokens that Hugging Face's BERT tokenizer finds with it.

    write_cased_tokens.py OUT_DIR

  vocab.txt              trained on examples/data and the texts below without lower-casing;
                         [PAD] [UNK] [CLS] [SEP] [MASK] first
  tokenizer_config.json  as of bert-base-cased
  tokens.json            "texts": text, ids without special tokens; "pairs": two texts, max_length, ids and
                         type ids; "fuzz": the hashes of the 5,000 strings of fuzz.py, 100 per hash, as in
                         write_token_hashes.py
"""
import json
import sys
from pathlib import Path

import tokenizers
import transformers

from fuzz import fuzz_string
from write_token_hashes import hash_texts, sequences_of_pair

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/data"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "The Quick brown fox", "THE QUICK BROWN FOX", "the quick brown fox", "McDonald's iPhone in NYC",
    "Ångström naïve CAFÉ Über", "İstanbul and STRASSE, straße", "don't U.S.A. e-mail 3.14159",
    "Who wrote it? [MASK] did.", "[mask] [CLS]", "日本 and Tōkyō", "", " \t\n ", "aB Ab AB ab",
    "unaffable Unaffable UNAFFABLE",
]
PAIRS = [("The Museum opened in May.", "the museum opened in may.", 16), ("A", "b", 4),
         ("Long and LONGER and longest", "Short", 8)]


def training_texts():
    yield from TEXTS  # capitals inside of words, and letters with accents
    for path in sorted(EXAMPLES.glob("*/*.tsv")):
        yield from path.read_text().splitlines()
    for path in sorted(EXAMPLES.glob("*/*.json")):
        for article in json.loads(path.read_text())["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (qa["question"] for qa in paragraph["qas"])


def main():
    out = Path(sys.argv[1])
    trained = tokenizers.BertWordPieceTokenizer(lowercase=False)
    trained.train_from_iterator(training_texts(), vocab_size=1500, min_frequency=2, special_tokens=SPECIAL,
                                show_progress=False)
    vocabulary = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    (out / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in vocabulary))
    (out / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "model_max_length": 512, "tokenizer_class": "BertTokenizer"}) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(out / "vocab.txt"), do_lower_case=False)
    pairs = []
    for first, second, length in PAIRS:
        ids, types = sequences_of_pair(tokenizer, [first, second], length)
        pairs.append({"texts": [first, second], "max_length": length, "ids": ids, "types": types})
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    texts = [{"text": text, "ids": backend.encode(text, add_special_tokens=False).ids} for text in TEXTS]
    strings = [fuzz_string(seed) for seed in range(5000)]
    golden = {
        "written_by": "write_cased_tokens.py",
        "versions": {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__},
        "texts": texts,
        "pairs": pairs,
        "fuzz": [hash_texts(backend, strings[i:i + 100]) for i in range(0, 5000, 100)],
    }
    (out / "tokens.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
