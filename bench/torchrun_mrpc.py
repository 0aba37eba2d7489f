"""MRPC with PyTorch's DistributedDataParallel over Gloo; torchrun_faults.py runs it under torchrun.

Saves a checkpoint every --save-steps steps, and continues from the last one when torchrun starts it again. Rank 0 appends
one JSON line per start and per step to --events.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import transformers

import support


class Log:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def write(self, **values):
        self.file.write(json.dumps({"time": time.time(), **values}) + "\n")
        self.file.flush()


def save(path, **state):
    staging = path.with_suffix(".tmp")
    torch.save(state, staging)
    os.replace(staging, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="directory of MRPC")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--events", type=pathlib.Path, required=True)
    parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-steps", type=int, default=50)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(42)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    labels, (first_texts, second_texts) = support.read_glue(args.data, "mrpc", "train")
    steps_per_epoch = -(-len(labels) // args.batch)
    total = args.epochs * steps_per_epoch
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, total)
    checkpoint, first = args.output / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first = state["step"]
    log = Log(args.events)
    log.write(event="start", rank=rank, pid=os.getpid(), step=first)
    model.train()
    for step in range(first, total):
        epoch, batch = divmod(step, steps_per_epoch)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch)).tolist()
        chosen = order[batch * args.batch:(batch + 1) * args.batch][rank::world]
        inputs = tokenizer([first_texts[i] for i in chosen], [second_texts[i] for i in chosen],
                           truncation=True, max_length=128, padding=True, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16):
            loss = wrapped(**inputs, labels=torch.tensor([labels[i] for i in chosen])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if rank == 0:
            log.write(event="step", step=step + 1)
            if (step + 1) % args.save_steps == 0:
                save(checkpoint, step=step + 1, model=model.state_dict(),
                     optimizer=optimizer.state_dict(), schedule=schedule.state_dict())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
