#!/usr/bin/env python3
"""Writes token_hashes.json: hashes of the results of Hugging Face's BERT tokenizer.

    write_token_hashes.py MODEL_DIR DATA_DIR > token_hashes.json

Every hash is SHA-256 over sequences. A sequence is hashed as its length and its numbers, all
little-endian int32. By default a sequence is the ids of one text without [CLS] and [SEP].

  files       per file of the data directory. A TSV has "lines" (each raw line is a text) and
              "examples" (the input of a GLUE task: ids, then type ids of [CLS] a [SEP] b [SEP], at
              most 128); a SQuAD file has "texts" (each context, then its questions)
  fuzz        per set of normaliser options: the hashes of 5,000 strings (fuzz.py), 100 per hash.
              "pairs": strings 2k and 2k+1 with max_length 3 + k % 60, ids then type ids.
              "strings": the strings themselves (UTF-8, each preceded by its byte length)
  truncation  for a, b in 0..40 and max_length in 3..64: the number of tokens of each that remain
  code_points for every code point c: the normalised forms of "a" + c + "b" with single options, as
              UTF-8 bytes; "words": its pieces without normaliser, with the vocabulary [UNK] a b
"""
import hashlib
import json
import platform
import sys
from pathlib import Path

import tokenizers
import transformers
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from fuzz import fuzz_string
from sequence_hash import SequenceHash

OPTIONS = {
    "as_configured": {},
    "cased": {"lowercase": False},
    "accents_kept": {"strip_accents": False},
    "bare": {"clean_text": False, "handle_chinese_chars": False, "lowercase": False,
             "strip_accents": True},
}
EXAMPLE_COLUMNS = {"MRPC": (True, [3, 4]), "CoLA": (False, [3]), "RTE": (True, [1, 2]),
                   "SST-2": (True, [0])}
# The order of the spacing marks of classes 224 and 9 around c depends on the class of c.
CODE_POINT_CASES = {
    "clean_text": ("a{}b", dict(clean_text=True)),
    "handle_chinese_chars": ("a{}b", dict(handle_chinese_chars=True)),
    "strip_accents": ("a\u302e{}\u1baab", dict(strip_accents=True)),
    "lowercase": ("a{}b", dict(lowercase=True)),
    "all": ("a\u302e{}\u1baab", dict(clean_text=True, handle_chinese_chars=True,
                                     strip_accents=True, lowercase=True)),
}


def hash_texts(backend, texts):
    backend.no_truncation()  # a call of the transformers tokenizer sets truncation and padding
    backend.no_padding()
    result = SequenceHash()
    for encoding in backend.encode_batch(list(texts), add_special_tokens=False):
        result.sequence(encoding.ids)
    return result.hex()


def lines_of(path):
    lines = path.read_bytes().decode().split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def sequences_of_pair(tokenizer, texts, max_length):
    """One text or two, in lists as in run_glue: outside a list, a second text "" is ignored."""
    encoded = tokenizer(*[[text] for text in texts], truncation=True, max_length=max_length)
    return encoded["input_ids"][0], encoded["token_type_ids"][0]


def hash_examples(tokenizer, task, lines):
    header, columns = EXAMPLE_COLUMNS[task]
    result = SequenceHash()
    for line in lines[1 if header else 0:]:
        fields = line.split("\t")
        for sequence in sequences_of_pair(tokenizer, [fields[c] for c in columns], 128):
            result.sequence(sequence)
    return result.hex()


def hash_files(tokenizer, data):
    files = {}
    for path in sorted(data.glob("glue/*/*.tsv")):
        lines = lines_of(path)
        files[str(path.relative_to(data))] = {
            "sequences": len(lines),
            "lines": hash_texts(tokenizer.backend_tokenizer, lines),
            "examples": hash_examples(tokenizer, path.parent.name, lines),
        }
    for path in sorted(data.glob("squad/*.json")):
        texts = []
        for article in json.loads(path.read_text())["data"]:
            for paragraph in article["paragraphs"]:
                texts.append(paragraph["context"])
                texts += [qa["question"] for qa in paragraph["qas"]]
        files[str(path.relative_to(data))] = {
            "sequences": len(texts), "texts": hash_texts(tokenizer.backend_tokenizer, texts)}
    return files


def with_options(model_dir, options):
    spec = json.loads((model_dir / "tokenizer.json").read_text())
    spec["normalizer"].update(options)
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def hash_fuzz(tokenizer, model_dir):
    strings = [fuzz_string(seed) for seed in range(5000)]
    all_strings = SequenceHash()
    for string in strings:
        all_strings.text(string)
    pairs = SequenceHash()
    for k in range(len(strings) // 2):
        for sequence in sequences_of_pair(tokenizer, strings[2 * k:2 * k + 2], 3 + k % 60):
            pairs.sequence(sequence)
    result = {"strings": all_strings.hex(), "pairs": pairs.hex()}
    for name, options in OPTIONS.items():
        backend = with_options(model_dir, options)
        result[name] = [hash_texts(backend, strings[i:i + 100]) for i in range(0, 5000, 100)]
    return result


def hash_truncation(model_dir):
    backend = with_options(model_dir, {})
    backend.no_padding()
    result = SequenceHash()
    for max_length in range(3, 65):
        backend.enable_truncation(max_length, strategy="longest_first")
        for encoding in backend.encode_batch([("a " * a, "b " * b) for a in range(41)
                                              for b in range(41)]):
            types = encoding.type_ids
            second = sum(types) - 1
            result.sequence([len(types) - 3 - second, second])
    return result.hex()


def hash_code_points():
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    result = {}
    for name, (pattern, options) in CODE_POINT_CASES.items():
        normalizer = normalizers.BertNormalizer(**{**off, **options})
        case = SequenceHash()
        for c in code_points:
            case.text(normalizer.normalize_str(pattern.format(chr(c))))
        result[name] = case.hex()
    backend = tokenizers.Tokenizer(WordPiece({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    result["words"] = hash_texts(backend, ("a" + chr(c) + "b" for c in code_points))
    return result


def main():
    model_dir, data = Path(sys.argv[1]), Path(sys.argv[2])
    tokenizer = transformers.BertTokenizerFast.from_pretrained(model_dir)
    json.dump({
        "written_by": "write_token_hashes.py",
        "versions": {"tokenizers": tokenizers.__version__,
                     "transformers": transformers.__version__,
                     "python": platform.python_version()},
        "tokenizer_json_sha256": hashlib.sha256(
            (model_dir / "tokenizer.json").read_bytes()).hexdigest(),
        "files": hash_files(tokenizer, data),
        "fuzz": hash_fuzz(tokenizer, model_dir),
        "truncation": hash_truncation(model_dir),
        "code_points": hash_code_points(),
    }, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
