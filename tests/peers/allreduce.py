"""The training script of torchrun.py: sums numbers over ranks with gloo and writes a checkpoint after each step.

Each step adds the numbers of a batch of 8, of which a rank sums its part, so the total does not depend on the number of
ranks. Prints "step N world W" for each step.
"""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

BATCH = 8


def total_after(steps):
    return sum(range(steps * BATCH))


def main():
    folder, steps, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    checkpoint = folder / "checkpoint.json"
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Rank 0 reads for all: a rank that starts late must not read a newer checkpoint.
    state = torch.zeros(2, dtype=torch.int64)
    if rank == 0 and checkpoint.exists():
        state = torch.tensor(json.loads(checkpoint.read_text()), dtype=torch.int64)
    dist.broadcast(state, 0)
    step, total = state.tolist()
    while step < steps:
        part = torch.tensor(sum(range(step * BATCH, (step + 1) * BATCH)[rank::world]), dtype=torch.int64)
        dist.all_reduce(part)
        step, total = step + 1, total + part.item()
        if rank == 0:
            staging = checkpoint.with_suffix(".staging")
            staging.write_text(json.dumps([step, total]))
            os.replace(staging, checkpoint)
            print(f"step {step} world {world}", flush=True)
        time.sleep(seconds)  # stands for the step's arithmetic
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
