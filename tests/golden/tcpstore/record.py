"""Records what PyTorch's TCPStore client and server say to each other: data/libuv.jsonl and data/legacy.jsonl.

    python3 record.py data                     # needs torch from PyPI
    python3 record.py FOLDER --server PORT     # with a server that runs already, on 127.0.0.1

The clients reach a real server through a proxy that notes the bytes. Every step runs alone and ends with a reply, so a
recording has one order. A line is a step; "bytes" lists what crossed the proxy as
[connection, "client" or "server", hex], neighbours with the same sender joined, in the order in which they crossed it; the
order of different connections within a step is not fixed. Steps without a reply end with GETNUMKEYS. The first line of a
recording has the versions. PING carries the process id of the client, so a new recording differs there.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import socket
import threading

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=20)
SHORT = datetime.timedelta(milliseconds=50)


class Proxy:
    """In a process of its own: the client's constructor does not release Python's lock."""

    def __init__(self, server_port):
        self.pipe, child = multiprocessing.get_context("fork").Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=self.run, args=(server_port, child), daemon=True)
        self.process.start()
        self.port = self.pipe.recv()

    def stop(self):
        self.process.kill()
        self.process.join()

    def take(self):
        """The bytes that have crossed since the last call."""
        self.pipe.send(None)
        return self.pipe.recv()

    def wait_for_client(self, number):
        """Waits until the connection has sent something since the last take()."""
        self.pipe.send(number)
        assert self.pipe.recv(), f"connection {number} sent nothing"

    def run(self, server_port, pipe):
        self.server_port = server_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.changed = threading.Condition()
        self.chunks = []
        self.connections = 0
        threading.Thread(target=self.accept, daemon=True).start()
        pipe.send(self.listener.getsockname()[1])
        while True:
            number = pipe.recv()
            with self.changed:
                if number is None:
                    pipe.send([[connection, side, data.hex()] for connection, side, data in self.chunks])
                    self.chunks = []
                else:
                    pipe.send(self.changed.wait_for(
                        lambda: any(chunk[:2] == [number, "client"] for chunk in self.chunks), 20))

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            number, self.connections = self.connections, self.connections + 1
            server = socket.create_connection(("127.0.0.1", self.server_port))
            for side, source, target in (("client", client, server), ("server", server, client)):
                threading.Thread(target=self.copy, args=(number, side, source, target), daemon=True).start()

    def copy(self, number, side, source, target):
        while data := source.recv(1 << 20):
            with self.changed:
                if self.chunks and self.chunks[-1][:2] == [number, side]:
                    self.chunks[-1][2] += data
                else:
                    self.chunks.append([number, side, data])
                target.sendall(data)
                self.changed.notify_all()
        target.close()


def record(use_libuv, server_port):
    server = None if server_port else dist.TCPStore("127.0.0.1", 0, None, True, TIMEOUT, False, use_libuv=use_libuv)
    proxy = Proxy(server_port or server.port)
    lines = []

    def step(name, run, reply=None):
        result = run()
        if reply is None:  # the operation has no reply: one that has follows
            first.num_keys()
        lines.append({"step": name, "bytes": proxy.take()})
        return result

    def connect():
        return dist.TCPStore("127.0.0.1", proxy.port, None, False, TIMEOUT, False, use_libuv=use_libuv)

    first = step("connect", connect, True)
    step("set", lambda: first.set("key", "value"))
    assert step("get", lambda: first.get("key"), True) == b"value"
    step("set an empty value", lambda: first.set("empty", ""))
    assert step("get an empty value", lambda: first.get("empty"), True) == b""
    assert step("delete", lambda: first.delete_key("empty"), True)
    assert not step("delete a missing key", lambda: first.delete_key("empty"), True)
    assert step("list one key", first.list_keys, True) == ["key"]
    assert step("add", lambda: first.add("counter", 5), True) == 5
    assert step("add a negative number", lambda: first.add("counter", -7), True) == -2
    assert step("get a counter", lambda: first.get("counter"), True) == b"-2"
    assert step("compare and set a missing key", lambda: first.compare_set("state", "", "one"), True) == b"one"
    assert step("compare and set", lambda: first.compare_set("state", "one", "two"), True) == b"two"
    assert step("compare and set with another value", lambda: first.compare_set("state", "one", "three"), True) == b"two"
    assert step("compare and set a missing key with a value",
                lambda: first.compare_set("nothing", "expected", "new"), True) == b"expected"
    assert step("check", lambda: first.check(["key", "counter"]), True)
    assert not step("check a missing key", lambda: first.check(["key", "nothing"]), True)
    assert step("number of keys", first.num_keys, True) == 3
    step("append to a missing key", lambda: first.append("log", "ab"))
    step("append", lambda: first.append("log", "cd"))
    assert step("get what was appended", lambda: first.get("log"), True) == b"abcd"
    step("multi set", lambda: first.multi_set(["m1", "m2"], ["one", ""]))
    assert step("multi get", lambda: first.multi_get(["m1", "m2", "key"]), True) == [b"one", b"", b"value"]
    step("set bytes beyond one packet", lambda: first.set("large", "x" * 2000))
    assert step("get bytes beyond one packet", lambda: first.get("large"), True) == b"x" * 2000

    second = step("connect again", connect, True)

    def wait_in_thread(run):
        """Starts run() and returns once its request has crossed; join() returns its exception."""
        failure = []

        def body():
            try:
                run()
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        proxy.wait_for_client(1)

        def join():
            thread.join(20)
            assert not thread.is_alive()
            return failure[0] if failure else None
        return join

    def wait_then(name, blocked, release):
        join = wait_in_thread(blocked)
        lines.append({"step": f"{name}: wait", "bytes": proxy.take()})
        release()
        assert join() is None
        lines.append({"step": f"{name}: release", "bytes": proxy.take()})

    wait_then("wait for a set", lambda: second.wait(["late"], TIMEOUT), lambda: first.set("late", "1"))
    wait_then("wait for an add", lambda: second.wait(["late", "sum"], TIMEOUT), lambda: first.add("sum", 1))
    wait_then("wait for an append", lambda: second.wait(["text"], TIMEOUT), lambda: first.append("text", "t"))
    wait_then("wait for a multi set", lambda: second.wait(["m3", "m4"], TIMEOUT),
              lambda: first.multi_set(["m3", "m4"], ["3", "4"]))
    if use_libuv:  # the legacy server does not wake clients here
        wait_then("wait for a compare and set", lambda: second.wait(["cas"], TIMEOUT),
                  lambda: first.compare_set("cas", "", "c"))
    wait_then("barrier", lambda: second.barrier("gate", 2, TIMEOUT), lambda: first.barrier("gate", 2, TIMEOUT))

    def expect_timeout(run):
        try:
            run()
        except dist.DistStoreError:
            return True
        return False

    assert step("a wait that times out", lambda: expect_timeout(lambda: first.wait(["never"], SHORT)), True)
    assert step("a barrier that times out", lambda: expect_timeout(lambda: first.barrier("alone", 2, SHORT)), True)
    assert step("number of keys after the timeouts", first.num_keys, True) == (15 if use_libuv else 14)
    if use_libuv:
        step("queue push", lambda: first.queue_push("jobs", "a"))
        step("queue push again", lambda: first.queue_push("jobs", "b"))
        assert step("queue length", lambda: first.queue_len("jobs"), True) == 2
        assert step("queue pop", lambda: first.queue_pop("jobs"), True) == b"a"
        assert step("queue pop without a wait", lambda: first.queue_pop("jobs", False), True) == b"b"
        assert step("queue pop of an empty queue",
                    lambda: expect_timeout(lambda: first.queue_pop("jobs", False)), True)
        assert step("length of an empty queue", lambda: first.queue_len("jobs"), True) == 0
        wait_then("queue pop that waits", lambda: second.queue_pop("jobs"), lambda: first.queue_push("jobs", "c"))
        assert step("number of keys beside queues", first.num_keys, True) == 15
    proxy.stop()
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--server", type=int)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, use_libuv in (("libuv", True), ("legacy", False)):
        lines = [{"torch": torch.__version__, "backend": name}] + record(use_libuv, options.server)
        staging = folder / f"{name}.jsonl.staging"
        staging.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.replace(staging, folder / f"{name}.jsonl")
        print(f"{name}: {len(lines) - 1} steps")


if __name__ == "__main__":
    main()
