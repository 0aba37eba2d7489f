#!/usr/bin/env python3
"""Writes squad_goldens.json: features, predictions and metrics of SQuAD as Hugging Face computes them.

    write_squad_goldens.py MODEL_DIR DATA_DIR > squad_goldens.json

Every hash is SHA-256 over sequences. A sequence is its length and its numbers, little-endian int32; a
text is its length in bytes and its UTF-8.

  offsets     per set of normaliser options: for the 5,000 strings of tests/golden/text/fuzz.py, 100
              per hash, the ids and the offsets (begin, end) of each string's tokens
  features    per case: for 100 questions per hash, of each window: ids, types, offsets (begin, end;
              -1, -1 outside of the context) and (question, start position, end position)
  long_context  per case of FEATURE_CASES, for the questions of `long_examples`: the number of windows
              of each question and of those with the answer, the features' hash and those of the files
              of predictions for the logits of `make_logits`
  text        over all code points c that are assigned in this Python's Unicode version: lower case of
              c, of "a" + c + "SIGMA", and of "A" + "SIGMA" + c; whether c is white space, and \\w
  predictions per case: the hash of each file that the script writes, and the metrics, for the logits
              of `make_logits`
  metrics     v2's metrics for the predictions of `make_predictions`, with and without probabilities
              of no answer; v1's for the questions with answers

The windows, offsets and tokens come from transformers' fast tokenizer, v2's metrics from
transformers.data.metrics.squad_metrics. The rest follows the published descriptions of run_qa and of
the official evaluation; its prediction files were also compared with those of the published
utils_qa.py for the same logits, padded with -100: all were byte-identical. MODEL_DIR is that of
all-MiniLM-L6-v2, also for the cased case, in which its lower-case entries give many unknown words. The
script stops if the best logits of a window hold equal ones, whose order in NumPy depends on the CPU.
"""
import collections
import hashlib
import json
import os
import platform
import re
import sys
import unicodedata
from pathlib import Path

# NumPy's float64 exp rounds differently with AVX512_SKX than with the C library, which it uses on
# other CPUs. The script's softmax is in float64 for a list with only "no answer".
os.environ["NPY_DISABLE_CPU_FEATURES"] = "AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL X86_V4"
import numpy as np  # noqa: E402
import tokenizers
import transformers
from transformers.data.metrics import squad_metrics

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "text"))
from fuzz import Random, fuzz_string  # noqa: E402
from sequence_hash import SequenceHash  # noqa: E402

OPTIONS = {
    "as_configured": {},
    "cased": {"lowercase": False},
    "accents_kept": {"strip_accents": False},
    "bare": {"clean_text": False, "handle_chinese_chars": False, "lowercase": False,
             "strip_accents": True},
}
FILES = ["train-v1.1.json", "xquad.en.json", "train-v2.0.json", "dev-v2.0.json"]
# name: lower case, max_seq_length, doc_stride
FEATURE_CASES = {"uncased": (True, 384, 128), "cased": (False, 384, 128), "short": (True, 96, 24)}
# file, max_seq_length, doc_stride, version_2_with_negative, null_score_diff_threshold, n_best_size,
# max_answer_length
PREDICTION_CASES = [
    ("xquad.en.json", 384, 128, False, 0.0, 20, 30),
    ("train-v1.1.json", 128, 32, False, 0.0, 200, 60),
    ("xquad.en.json", 384, 128, False, 0.0, 1, 30),
    ("dev-v2.0.json", 384, 128, True, 0.0, 20, 30),
    ("dev-v2.0.json", 128, 32, True, 0.75, 5, 12),
    ("train-v2.0.json", 384, 128, True, -1.5, 1, 30),
]
# The words of `long_examples`: pieces, marks, characters of several bytes.
LONG_WORDS = ["river", "Zürich", "unbelievably", "7,300", "café", "x-ray", "stone.", "文字", "the",
              "lamplighters", "(or)", "naïve", "I\u0307stanbul", "of"]
LONG_COUNT = 10_000
# The answers: the index of the first word, the words. No other word equals one of them.
LONG_ANSWERS = [(0, "Saffron"), (5_000, "three green herons"), (9_999, "Quetzal")]
Example = collections.namedtuple("Example", "qas_id question_text context_text answers")


def read_examples(path):
    return [Example(qa["id"], qa["question"], paragraph["context"], qa["answers"])
            for article in json.loads(path.read_text())["data"]
            for paragraph in article["paragraphs"] for qa in paragraph["qas"]]


def long_examples():
    """A context of 10,000 words with answers at its beginning, in its middle and at its end."""
    random = Random(10_000)
    words = [LONG_WORDS[random.below(len(LONG_WORDS))] for _ in range(LONG_COUNT)]
    for first, text in LONG_ANSWERS:
        words[first:first + len(text.split())] = text.split()
    context = " ".join(words)
    return [Example(f"q{first}", f"What is word {first}?", context,
                    [{"text": text, "answer_start": context.index(text)}])
            for first, text in LONG_ANSWERS]


def long_context_of_case(tokenizer, max_length, stride):
    examples = long_examples()
    features = make_features(tokenizer, examples, max_length, stride)
    _, files = predict(examples, features, make_logits(features), False, 0.0, 20, 30)
    def count(with_answer):
        return [sum(f["question"] == i and (f["end"] > 0 or not with_answer) for f in features)
                for i in range(len(examples))]
    return {"windows": count(False), "with_answer": count(True),
            "hash": hash_features(examples, features)[0],
            "files": {file: hashlib.sha256(content.encode()).hexdigest()
                      for file, content in files.items()}}


def encode(tokenizer, examples, max_length, stride):
    return tokenizer([e.question_text.lstrip() for e in examples],
                     [e.context_text for e in examples], truncation="only_second",
                     max_length=max_length, stride=stride, return_overflowing_tokens=True,
                     return_offsets_mapping=True, padding=False)


def positions_of(example, offsets, sequence_ids):
    """run_qa's labels: the answer's first and last token, or [CLS] twice."""
    if not example.answers:
        return 0, 0
    begin = example.answers[0]["answer_start"]
    end = begin + len(example.answers[0]["text"])
    context = [i for i, sequence in enumerate(sequence_ids) if sequence == 1]
    if offsets[context[0]][0] > begin or offsets[context[-1]][1] < end:
        return 0, 0
    # The script walks on from the window's first token while a token begins no later than the
    # answer. [SEP] has the offsets (0, 0), so it walks over it.
    first = context[0]
    while first < len(offsets) and offsets[first][0] <= begin:
        first += 1
    last = context[-1]
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def make_features(tokenizer, examples, max_length, stride):
    encoded = encode(tokenizer, examples, max_length, stride)
    features = []
    for i, question in enumerate(encoded["overflow_to_sample_mapping"]):
        sequence_ids = encoded.sequence_ids(i)
        offsets = encoded["offset_mapping"][i]
        start, end = positions_of(examples[question], offsets, sequence_ids)
        features.append({
            "question": question, "ids": encoded["input_ids"][i],
            "types": encoded["token_type_ids"][i], "start": start, "end": end,
            "offsets": [o if s == 1 else None for o, s in zip(offsets, sequence_ids)]})
    return features


def hash_features(examples, features):
    hashes = [SequenceHash() for _ in range((len(examples) + 99) // 100)]
    for feature in features:
        result = hashes[feature["question"] // 100]
        result.sequence(feature["ids"])
        result.sequence(feature["types"])
        result.sequence([x for o in feature["offsets"] for x in (o or (-1, -1))])
        result.sequence([feature["question"], feature["start"], feature["end"]])
    return [result.hex() for result in hashes]


def make_logits(features):
    """Multiples of 2^-20 from -8 to 8; every third window has its answer raised by 8, and every fifth
    [CLS], so that some predictions are right."""
    random = Random(2018)
    for index, feature in enumerate(features):
        draws = [[random.below(1 << 24) - (1 << 23) for _ in range(2)] for _ in feature["ids"]]
        logits = (np.array(draws, dtype=np.float64) / (1 << 20)).astype(np.float32)
        if index % 3 == 0:
            logits[feature["start"], 0] += 8
            logits[feature["end"], 1] += 8
        if index % 5 == 0:
            logits[0] += 8
        yield logits[:, 0].copy(), logits[:, 1].copy()


def predict(examples, features, logits, negative, threshold, n_best, max_answer, refuse_ties=True):
    """The n-best lists, answers and null odds of run_qa's post-processing."""
    windows = collections.defaultdict(list)
    for feature, values in zip(features, logits):
        windows[feature["question"]].append((feature["offsets"], *values))
    answers, lists, odds = {}, {}, {}
    ties = 0
    for index, example in enumerate(examples):
        candidates, null = [], None
        for offsets, starts, ends in windows[index]:
            no_answer = {"span": (0, 0), "score": starts[0] + ends[0],
                         "start_logit": starts[0], "end_logit": ends[0]}
            if null is None or no_answer["score"] < null["score"]:
                null = no_answer
            best = [np.argsort(values)[::-1][:n_best].tolist() for values in (starts, ends)]
            stable = [np.argsort(values, kind="stable")[::-1][:n_best].tolist()
                      for values in (starts, ends)]
            ties += best != stable
            for s in best[0]:
                for e in best[1]:
                    if offsets[s] and offsets[e] and s <= e < s + max_answer:
                        candidates.append({"span": (offsets[s][0], offsets[e][1]),
                                           "score": starts[s] + ends[e],
                                           "start_logit": starts[s], "end_logit": ends[e]})
        if negative:
            candidates.append(null)
        candidates = sorted(candidates, key=lambda c: c["score"], reverse=True)[:n_best]
        if negative and all(c["span"] != (0, 0) for c in candidates):
            candidates.append(null)
        scores = [c["score"] for c in candidates]
        entries = [{"start_logit": c["start_logit"], "end_logit": c["end_logit"],
                    "text": example.context_text[slice(*c["span"])]} for c in candidates]
        if not entries or (len(entries) == 1 and entries[0]["text"] == ""):
            scores.insert(0, 0.0)
            entries.insert(0, {"text": "empty", "start_logit": 0.0, "end_logit": 0.0})
        scores = np.array(scores)
        powers = np.exp(scores - np.max(scores))
        for entry, probability in zip(entries, powers / powers.sum()):
            entry["probability"] = probability
        chosen = next(entry for entry in entries if not negative or entry["text"])
        answers[example.qas_id] = chosen["text"]
        if negative:
            difference = null["score"] - chosen["start_logit"] - chosen["end_logit"]
            odds[example.qas_id] = float(difference)
            if difference > threshold:
                answers[example.qas_id] = ""
        lists[example.qas_id] = [
            {k: v if isinstance(v, str) else float(v) for k, v in entry.items()}
            for entry in entries]
    if ties and refuse_ties:
        raise SystemExit(f"{ties} windows have equal logits among the best: change the seed")
    files = {"eval_predictions.json": answers, "eval_nbest_predictions.json": lists}
    if negative:
        files["eval_null_odds.json"] = odds
    return answers, {name: json.dumps(content, indent=4) + "\n" for name, content in files.items()}


def score_v1(examples, answers):
    """The official means of v1.1: no special case for answers without words."""
    def f1(gold, found):
        gold, found = (squad_metrics.normalize_answer(text).split() for text in (gold, found))
        same = sum((collections.Counter(gold) & collections.Counter(found)).values())
        if same == 0:
            return 0
        precision, recall = same / len(found), same / len(gold)
        return 2 * precision * recall / (precision + recall)

    exact_sum = f1_sum = 0
    for example in examples:
        golds, found = [a["text"] for a in example.answers], answers[example.qas_id]
        exact_sum += max(squad_metrics.compute_exact(gold, found) for gold in golds)
        f1_sum += max(f1(gold, found) for gold in golds)
    return {"exact_match": 100.0 * exact_sum / len(examples), "f1": 100.0 * f1_sum / len(examples)}


def predictions_of_case(tokenizer, data, case):
    name, max_length, stride, negative, threshold, n_best, max_answer = case
    examples = read_examples(data / name)
    features = make_features(tokenizer, examples, max_length, stride)
    answers, files = predict(examples, features, make_logits(features), negative, threshold, n_best,
                             max_answer)
    metrics = (squad_metrics.squad_evaluate(examples, answers) if negative
               else score_v1(examples, answers))
    return {"file": name, "max_seq_length": max_length, "doc_stride": stride,
            "version_2_with_negative": negative, "null_score_diff_threshold": threshold,
            "n_best_size": n_best, "max_answer_length": max_answer,
            "features": len(features),
            "placeholders": files["eval_nbest_predictions.json"].count('"text": "empty"'),
            "files": {file: hashlib.sha256(content.encode()).hexdigest()
                      for file, content in files.items()},
            "metrics": list(metrics.items())}


def make_predictions(examples):
    predictions = {}
    for i, example in enumerate(examples):
        gold = example.answers[0]["text"] if example.answers else ""
        predictions[example.qas_id] = [
            gold, f"THE {gold}!", gold.split(" ")[0], fuzz_string(i), "", f"{gold} {fuzz_string(i)}",
            f"{gold}\u00a0an\u2003{gold}", gold.swapcase() if gold.isascii() else gold][i % 8]
    return predictions


def metrics_of_predictions(data):
    examples = read_examples(data / "dev-v2.0.json")
    predictions = make_predictions(examples)
    random = Random(2016)
    probabilities = {e.qas_id: random.below(64) / 64 for e in examples}
    answered = [e for e in examples if e.answers]
    return {"v2": list(squad_metrics.squad_evaluate(examples, predictions).items()),
            "v2_with_probabilities": list(squad_metrics.squad_evaluate(
                examples, predictions, probabilities).items()),
            "v1": list(score_v1(answered, predictions).items())}


def hash_offsets(model_dir):
    result = {}
    for name, options in OPTIONS.items():
        spec = json.loads((model_dir / "tokenizer.json").read_text())
        spec["normalizer"].update(options)
        backend = tokenizers.Tokenizer.from_str(json.dumps(spec))
        backend.no_truncation()
        backend.no_padding()
        result[name] = []
        for first in range(0, 5000, 100):
            part = SequenceHash()
            for encoding in backend.encode_batch([fuzz_string(i) for i in range(first, first + 100)],
                                                 add_special_tokens=False):
                part.sequence(encoding.ids)
                part.sequence([x for offset in encoding.offsets for x in offset])
            result[name].append(part.hex())
    return result


def hash_python_text():
    assigned, unassigned = [], []
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        if unicodedata.category(chr(c)) != "Cn":
            assigned.append(chr(c))
        elif unassigned and unassigned[-1][1] == c - 1:
            unassigned[-1][1] = c
        else:
            unassigned.append([c, c])
    word = re.compile(r"\w")
    hashes = {name: SequenceHash() for name in ("lower", "sigma_after", "sigma_before")}
    for c in assigned:
        hashes["lower"].text(c.lower())
        hashes["sigma_after"].text(("a" + c + "\u03a3").lower() + (c + "\u03a3").lower())
        hashes["sigma_before"].text(("A\u03a3" + c).lower() + ("A\u03a3" + c + "b").lower())
    classes = SequenceHash()
    classes.sequence([2 * bool(word.match(c)) + c.isspace() for c in assigned])
    return {"unassigned": " ".join(f"{a:x}-{b:x}" for a, b in unassigned),
            "classes": classes.hex(), **{name: h.hex() for name, h in hashes.items()}}


def main():
    model_dir, data = Path(sys.argv[1]), Path(sys.argv[2]) / "squad"
    tokenizers_by_case = {
        lower: transformers.BertTokenizerFast.from_pretrained(model_dir, do_lower_case=lower)
        for lower in (True, False)}
    features = {}
    for name in FILES:
        examples = read_examples(data / name)
        for case, (lower, max_length, stride) in FEATURE_CASES.items():
            made = make_features(tokenizers_by_case[lower], examples, max_length, stride)
            features[f"{name} {case}"] = {"questions": len(examples), "features": len(made),
                                          "hashes": hash_features(examples, made)}
    json.dump({
        "written_by": "write_squad_goldens.py",
        "versions": {"tokenizers": tokenizers.__version__,
                     "transformers": transformers.__version__, "numpy": np.__version__,
                     "python": platform.python_version(), "unicode": unicodedata.unidata_version},
        "tokenizer_json_sha256": hashlib.sha256(
            (model_dir / "tokenizer.json").read_bytes()).hexdigest(),
        "offsets": hash_offsets(model_dir),
        "features": features,
        "long_context": {case: long_context_of_case(tokenizers_by_case[lower], max_length, stride)
                         for case, (lower, max_length, stride) in FEATURE_CASES.items()},
        "text": hash_python_text(),
        "predictions": [predictions_of_case(tokenizers_by_case[True], data, case)
                        for case in PREDICTION_CASES],
        "metrics": metrics_of_predictions(data),
    }, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
