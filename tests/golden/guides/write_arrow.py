#!/usr/bin/env python3
"""Writes the hub's SQuAD rows as Arrow streams, as the datasets library prepares them.

    write_arrow.py tests/golden/guides
"""
import pathlib
import sys

import pyarrow
import pyarrow.parquet

ROOT = pathlib.Path(sys.argv[1])

for split in ("train", "validation"):
    table = pyarrow.parquet.read_table(
        ROOT / f"data/datasets/rajpurkar/squad/plain_text/{split}-00000-of-00001.parquet")
    (ROOT / "arrow").mkdir(exist_ok=True)
    # The datasets library writes batches of up to 1,000 rows; several show that they are joined.
    with pyarrow.ipc.new_stream(str(ROOT / f"arrow/squad-{split}.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
