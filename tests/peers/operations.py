"""Runs every operation of PyTorch's TCPStore client on Tilewright's server.

    python3 tests/peers/operations.py --server build/release/tests/tcpstore_server

The operations and their expected results are those of tests/golden/tcpstore/record.py; what the server sends is compared
with the recording of PyTorch's servers.
"""

import argparse
import json
import pathlib
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tcpstore"
sys.path.insert(0, str(GOLDEN))
import record  # noqa: E402


def by_connection(step):
    """What each connection sent and received; the order between connections is not fixed."""
    streams = {}
    for number, side, data in step["bytes"]:
        streams.setdefault((number, side), []).append(data)
    return {key: "".join(parts) for key, parts in streams.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    server = parser.parse_args().server
    failed = 0
    for name, use_libuv in (("libuv", True), ("legacy", False)):
        process = subprocess.Popen([server, "0", "127.0.0.1=job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        port = int(process.stdout.readline())
        steps = record.record(use_libuv, port)
        process.kill()
        process.wait()
        recorded = [json.loads(line) for line in (GOLDEN / "data" / f"{name}.jsonl").read_text().splitlines()[1:]]
        assert [step["step"] for step in steps] == [step["step"] for step in recorded]
        different = [ours["step"] for ours, theirs in zip(steps, recorded)
                     if not ours["step"].startswith("connect") and by_connection(ours) != by_connection(theirs)]
        print(f"client of the {name} server: {len(steps)} steps, different from PyTorch's: {different or 'none'}")
        failed += len(different)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
