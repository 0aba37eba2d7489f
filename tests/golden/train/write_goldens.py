#!/usr/bin/env python3
"""Writes the golden data of worker/train and of the training flags with transformers.

    write_goldens.py --out tests/golden/train

schedules.json: the learning rate of every step, as the schedulers of transformers compute it.
metrics.json: metrics and the lines that Trainer.log_metrics prints for them.
training_arguments.txt: the names of the fields of TrainingArguments.
training_arguments_5.txt: those of transformers 5.24.0; --fields FILE writes those of the installed version alone.
trainer_state.txt: the names of the fields of TrainerState, whose load_from_json() takes no others.
script_arguments.txt: not written here: the fields of ModelArguments and DataTrainingArguments of
    examples/pytorch/text-classification/run_glue.py (transformers' commit 242e7fc, 4.34.0.dev0) and of
    examples/pytorch/question-answering/run_qa.py (commit 03ea97a, 4.55.0.dev0).
arguments.json: command lines as HfArgumentParser reads them, a TrainingArguments as its to_json_string()
    writes it, and the steps at which the Trainer's DefaultFlowCallback logs, evaluates and saves.
vocab.txt: a vocabulary for tests/golden/data/small_d64.
predictions.json: the predictions of that model for sentences and pairs, computed in float64.
label_smoothing.json: losses and gradients of torch's cross entropy with label smoothing, and the losses of
    the Trainer that trains that model with --label_smoothing_factor.
question_answering/: config.json and weights of a small model for question answering, and answers.json,
    its answers as run_qa chooses them, with the logits computed in float64.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import types

import numpy
import torch
import transformers
from transformers import trainer_pt_utils

PEAK = 3e-5
SCHEDULES = [
    # steps, warmup_steps, warmup_ratio
    (10, 0, 0.0),
    (23, 4, 0.0),
    (50, 0, 0.07),
    (7, 6, 0.0),
    (1, 0, 0.0),
]
NAMES = ["linear", "constant", "constant_with_warmup", "cosine", "cosine_with_restarts", "polynomial"]

METRICS = [
    ("train", {"epoch": 3.0, "total_flos": 452213047296000.0, "train_loss": 0.4321987,
               "train_runtime": 194.598, "train_samples": 3668, "train_samples_per_second": 56.547,
               "train_steps_per_second": 1.773}),
    ("eval", {"epoch": 1.7391304347826086, "eval_accuracy": 0.8602941176470589, "eval_f1": 0.9,
              "eval_loss": 1e-5, "eval_runtime": 5.4321, "eval_samples": 408,
              "eval_samples_per_second": 75.109, "eval_steps_per_second": 9.389}),
    ("predict", {"predict_loss": 12345.67891, "predict_runtime": 90061.129, "predict_samples": 1725}),
    ("predict", {"predict_exact_match": 100.0, "predict_runtime": 172800.0, "predict_samples": 3,
                 "predict_f1": -0.00004}),
    ("train", {"epoch": 0.0125, "train_loss": 2.00005, "train_runtime": 0.069}),
]


def schedules():
    cases = []
    for name in NAMES:
        for steps, warmup_steps, warmup_ratio in SCHEDULES:
            arguments = transformers.TrainingArguments(
                output_dir="unused", warmup_steps=warmup_steps, warmup_ratio=warmup_ratio,
                report_to="none", use_cpu=True)
            weight = torch.nn.Parameter(torch.zeros(1))
            optimizer = torch.optim.AdamW([weight], lr=PEAK)
            scheduler = transformers.get_scheduler(
                name, optimizer, num_warmup_steps=arguments.get_warmup_steps(steps),
                num_training_steps=steps)
            rates = []
            for _ in range(steps):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                scheduler.step()
            cases.append({"name": name, "steps": steps, "warmup_steps": warmup_steps,
                          "warmup_ratio": warmup_ratio, "learning_rates": rates})
    return {"transformers": transformers.__version__, "peak": PEAK, "cases": cases}


def metrics():
    trainer = types.SimpleNamespace(is_world_process_zero=lambda: True)
    trainer.metrics_format = trainer_pt_utils.metrics_format
    cases = []
    for split, values in METRICS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            trainer_pt_utils.log_metrics(trainer, split, values)
        cases.append({"split": split, "metrics": values, "lines": printed.getvalue().splitlines()})
    return {"transformers": transformers.__version__, "cases": cases}


WORDS = ("the a cat dog sat ran on under mat tree . , ! ? and not is was it he she very old new red blue big "
         "small home river good bad ##s ##ing ##ed").split()
SENTENCES = [
    {"sentence": "The cat sat on the mat."},
    {"sentence": "a very old dog, not running!"},
    {"sentence1": "The dog ran.", "sentence2": "It was not a cat?"},
    {"sentence1": "", "sentence2": "red home"},
    {"sentence": "zebra the big trees " * 30},
    {"sentence": ""},
]


def predictions(out):
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS
    tokens += [letter for letter in letters if letter not in tokens]
    tokens += ["##" + letter for letter in letters if "##" + letter not in tokens]
    tokens += [f"[unused{i}]" for i in range(120 - len(tokens))]
    (out / "vocab.txt").write_text("\n".join(tokens) + "\n")
    tokenizer = transformers.BertTokenizer(str(out / "vocab.txt"), do_lower_case=True)
    model = transformers.BertForSequenceClassification.from_pretrained(
        str(out.parent / "data/small_d64"), attn_implementation="eager").double().eval()
    lines = []
    for item in SENTENCES:
        texts = [item["sentence"]] if "sentence" in item else [item["sentence1"], item["sentence2"]]
        encoded = tokenizer(*texts, truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            probabilities = model(**encoded).logits[0].softmax(-1)
        best = int(probabilities.argmax())
        lines.append({"input": item, "label": model.config.id2label[best],
                      "score": float(probabilities[best])})
    return {"transformers": transformers.__version__, "max_seq_length": 32, "lines": lines}


PAIRS = [  # sentence1, sentence2, label
    ("The cat sat on the mat.", "A very old dog, not running!", 2),
    ("The dog ran.", "It was not a cat?", 0),
    ("red home", "And the new home is blue.", 1),
    ("She ran to the big river, under trees.", "he sat", 2),
]


def label_smoothing(out):
    """Logits are multiples of 1/8 below 16: exact in bf16."""
    generator = torch.Generator().manual_seed(13)
    cases = []
    for classes, epsilon in [(2, 0.1), (3, 0.1), (3, 0.5), (10, 0.25), (10, 1.0)]:
        logits = (torch.randint(-127, 128, (5, classes), generator=generator).double() / 8).requires_grad_()
        labels = torch.randint(0, classes, (5,), generator=generator)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none", label_smoothing=epsilon)
        losses.sum().backward()
        smoother = trainer_pt_utils.LabelSmoother(epsilon=epsilon)
        cases.append({"classes": classes, "epsilon": epsilon, "logits": logits.flatten().tolist(),
                      "labels": labels.tolist(), "losses": losses.tolist(),
                      "gradients": logits.grad.flatten().tolist(),
                      "trainer_loss": float(smoother({"logits": logits.detach()}, labels))})
    return {"torch": torch.__version__, "transformers": transformers.__version__, "cases": cases,
            "training": smoothed_training(out)}


def smoothed_training(out):
    """Three steps over the whole training set, without dropout, and the evaluation after them."""
    torch.manual_seed(0)
    tokenizer = transformers.BertTokenizer(str(out / "vocab.txt"), do_lower_case=True)
    model = transformers.BertForSequenceClassification.from_pretrained(
        str(out.parent / "data/small_d64"), attn_implementation="eager", hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, classifier_dropout=0).double()
    encoded = tokenizer([a for a, _, _ in PAIRS], [b for _, b, _ in PAIRS], padding=True, return_tensors="pt")
    data = [{**{key: value[i] for key, value in encoded.items()}, "labels": label}
            for i, (_, _, label) in enumerate(PAIRS)]
    arguments = transformers.TrainingArguments(
        output_dir="unused", use_cpu=True, report_to="none", label_smoothing_factor=0.1, max_steps=3,
        per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=1e-3,
        lr_scheduler_type="constant", logging_steps=1, save_strategy="no", disable_tqdm=True)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)
    losses = []
    compute_loss = trainer.compute_loss

    def record(*positional, **named):
        result = compute_loss(*positional, **named)
        losses.append(float(result[0] if isinstance(result, tuple) else result))
        return result

    trainer.compute_loss = record
    trainer.train()
    eval_loss = trainer.evaluate()["eval_loss"]
    rows = [{"sentence1": first, "sentence2": second, "label": model.config.id2label[label]}
            for first, second, label in PAIRS]
    return {"epsilon": 0.1, "learning_rate": 1e-3, "rows": rows, "losses": losses[:3], "eval_loss": eval_loss}


QUESTIONS = [
    {"question": "Where is the cat?", "context": "The cat sat under the old tree."},
    {"id": "b", "question": "who ran", "context": "  A d\u00f3g, not\u00a0the \u732b\u732b, ran \U0001f408 on the red mat!"},
    {"id": 7, "question": "What is new?", "context": "The dog ran to the river. " * 3 + "A new home is on the big mat, and "
                                                     "it was good. He sat; she ran. " + "Very old trees. " * 4},
    {"id": 7.5, "question": "  was it red?", "context": "red"},
    {"id": "e", "question": "was she good", "context": " ".join(f"And she was {word}, not {word[::-1]}." for word in
                                                             "bad old home river cat tree".split())},
]
ANSWER_CASES = [  # max_seq_length, doc_stride, version_2_with_negative, threshold, n_best_size, max_answer_length
    (64, 16, False, 0.0, 20, 30),
    (32, 8, False, 0.0, 20, 4),
    (32, 8, True, 0.0, 20, 30),
    (32, 8, True, 1.0, 5, 30),
]


def question_answering(out):
    """Also checks that the pipeline chooses the same span where the context is one window."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "squad"))
    import write_squad_goldens as squad
    folder = out / "question_answering"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(2016)
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(
        vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=64, initializer_range=0.25))
    model.save_pretrained(folder)
    model = model.double().eval()
    tokenizer = transformers.BertTokenizerFast(str(out / "vocab.txt"), do_lower_case=True)
    examples = [squad.Example(str(i), one["question"], one["context"], []) for i, one in enumerate(QUESTIONS)]
    pipeline = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")
    cases = []
    for max_length, stride, negative, threshold, n_best, max_answer in ANSWER_CASES:
        features = squad.make_features(tokenizer, examples, max_length, stride)
        logits = []
        for feature in features:
            with torch.no_grad():
                found = model(input_ids=torch.tensor([feature["ids"]]),
                              token_type_ids=torch.tensor([feature["types"]]))
            logits.append((found.start_logits[0].numpy(), found.end_logits[0].numpy()))
        answers, files = squad.predict(examples, features, logits, negative, threshold, n_best, max_answer)
        lists = json.loads(files["eval_nbest_predictions.json"])
        lines = []
        for index, one in enumerate(QUESTIONS):
            answer = answers[str(index)]
            entry = next(e for e in lists[str(index)] if e["text"] == answer)
            start = end = 0
            windows = [(f, values) for f, values in zip(features, logits) if f["question"] == index]
            if answer:
                (start, end), = {
                    (feature["offsets"][s][0], feature["offsets"][e][1]) for feature, (starts, ends) in windows
                    for s in numpy.flatnonzero(starts == entry["start_logit"])
                    for e in numpy.flatnonzero(ends == entry["end_logit"])
                    if feature["offsets"][s] and feature["offsets"][e]}
                assert one["context"][start:end] == answer
            if len(windows) == 1 and not negative:
                piped = pipeline(question=one["question"].lstrip(), context=one["context"], max_seq_len=max_length,
                                 doc_stride=stride, max_answer_len=max_answer, align_to_words=False)
                assert (piped["start"], piped["end"]) == (start, end), (piped, start, end)
            lines.append({**({"id": one["id"]} if "id" in one else {}), "answer": answer,
                          "score": entry["probability"], "start": start, "end": end})
        cases.append({"max_seq_length": max_length, "doc_stride": stride, "version_2_with_negative": negative,
                      "null_score_diff_threshold": threshold, "n_best_size": n_best,
                      "max_answer_length": max_answer, "windows": len(features), "lines": lines})
    return {"transformers": transformers.__version__, "questions": QUESTIONS, "cases": cases}


COMMAND_LINES = [
    ["--num_train", "2"], ["--per_device_train_b=4"], ["--learning_r", "1e-4"], ["--overwrite_o", "False"],
    ["--overwrite-out"], ["--no_remove_unused"], ["--include_num_input_tokens_seen"], ["--save_total_limit", "-1"],
    ["--save_total_limit", "0"], ["--max_grad_norm", "-1"], ["--max_grad_norm", "0"], ["--logging_steps", "50.0"],
    ["--eval_steps", "0.25"], ["--save_steps", "-1"], ["--seed", " 8"], ["--learning_rate= 2e-5 "],
    ["--lr_scheduler_kwargs", "{}"], ["--accelerator_config", '{"split_batches": false}'],
    # errors
    ["--eval_s", "5"], ["--lr", "1e-4"], ["--per_device", "4"], ["--seed", "1.5"], ["--logging_steps", "0"],
    ["--logging_steps", "1.5"], ["--save_steps", "2.5"], ["--eval_strategy", "steps", "--eval_steps", "1.5"],
]
STEPS = [  # flags, steps of the training
    ("--logging_steps 500", 1200),
    ("--logging_steps 7 --eval_strategy steps", 30),
    ("--logging_steps 0.05 --eval_strategy steps --eval_steps 0.1 --save_steps 0.1", 345),
    ("--logging_steps 50.0 --save_steps 100.0", 230),
    ("--logging_steps 0.5 --eval_strategy steps --save_steps -1", 5),
    ("--logging_steps 0.999999 --save_steps 0", 7),
    ("--logging_steps 1 --eval_strategy steps --eval_steps 0 --save_steps 1e-9", 3),
    ("--logging_steps 3 --eval_strategy epoch --eval_steps 0.4", 10),
    ("--logging_strategy no --logging_steps 2 --save_strategy no", 10),
]


def parse(words):
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    words = ["--output_dir", "out", "--report_to", "none", "--use_cpu", *words]
    return parser.parse_args_into_dataclasses(args=words, look_for_args_file=False)[0]


def command_lines():
    default = parse([]).to_dict()
    cases = []
    for words in COMMAND_LINES:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                fields = parse(words).to_dict()
        except (SystemExit, ValueError):
            cases.append({"words": words, "error": True})
        else:
            cases.append({"words": words,
                          "fields": {name: fields[name] for name in fields
                                     if fields[name] != default[name] and name != "logging_dir"}})
    return cases


def steps():
    cases = []
    for flags, total in STEPS:
        arguments = parse(flags.split())
        state = transformers.TrainerState(max_steps=total)
        state.compute_steps(arguments, total)
        case = {"flags": flags, "max_steps": total, "logging_steps": state.logging_steps,
                "eval_steps": state.eval_steps, "save_steps": state.save_steps,
                "logged": [], "evaluated": [], "saved": []}
        for state.global_step in range(1, total + 1):
            control = transformers.DefaultFlowCallback().on_step_end(arguments, state, transformers.TrainerControl())
            for name, done in [("logged", control.should_log), ("evaluated", control.should_evaluate),
                               ("saved", control.should_save)]:
                if done:
                    case[name].append(state.global_step)
        cases.append(case)
    return cases


def arguments():
    dumped = transformers.TrainingArguments(output_dir="out", logging_dir="out/runs", report_to="none", use_cpu=True,
                                            max_steps=10, lr_scheduler_kwargs={})
    return {"transformers": transformers.__version__, "command_lines": command_lines(),
            "dumped": json.loads(dumped.to_json_string()), "steps": steps()}


def write_fields(path, dataclass=transformers.TrainingArguments):
    fields = [field.name for field in dataclasses.fields(dataclass) if not field.name.startswith("_")]
    path.write_text("\n".join(fields) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--fields", type=pathlib.Path)
    args = parser.parse_args()
    if args.fields:
        return write_fields(args.fields)
    out = args.out
    (out / "schedules.json").write_text(json.dumps(schedules(), indent=1) + "\n")
    (out / "metrics.json").write_text(json.dumps(metrics(), indent=1) + "\n")
    (out / "predictions.json").write_text(json.dumps(predictions(out), indent=1) + "\n")
    (out / "label_smoothing.json").write_text(json.dumps(label_smoothing(out), indent=1) + "\n")
    answers = json.dumps(question_answering(out), indent=1) + "\n"
    (out / "question_answering/answers.json").write_text(answers)
    write_fields(out / "training_arguments.txt")
    write_fields(out / "trainer_state.txt", transformers.TrainerState)
    (out / "arguments.json").write_text(json.dumps(arguments(), indent=1) + "\n")


if __name__ == "__main__":
    main()
