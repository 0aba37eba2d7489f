"""Links between two network namespaces: one with a rate, and one that delays and loses packets and can be cut, because
not every kernel has netem. Need root and iproute2, the second also /dev/net/tun."""

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time

from support import run

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
NAMESPACES = [f"tilewright-{os.getpid()}-{i}" for i in range(2)]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
DEVICE = "eth0"  # the end of the link in each namespace


@contextlib.contextmanager
def two_namespaces():
    """Two network namespaces whose loopback is up."""
    try:
        for name in NAMESPACES:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield NAMESPACES
    finally:
        for name in NAMESPACES:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def bring_up():
    for name, address in zip(NAMESPACES, ADDRESSES, strict=True):
        run("ip", "-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
        run("ip", "-n", name, "link", "set", DEVICE, "up")


@contextlib.contextmanager
def shaped_link(rate):
    """Two network namespaces whose only link sends at `rate` in both directions."""
    with two_namespaces() as names:
        run("ip", "link", "add", "name", DEVICE, "netns", names[0], "type", "veth", "peer", "name",
            DEVICE, "netns", names[1])
        bring_up()
        for name in names:
            run("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", rate,
                "burst", "4mb", "latency", "50ms")
        yield names


def missing(tun):
    """What this machine lacks for a link, with TUN devices or without; empty: nothing."""
    if os.geteuid() != 0:
        return "needs root"
    return "needs /dev/net/tun" if tun and not os.path.exists("/dev/net/tun") else ""


class EmulatedLink:
    """Forwards the packets of two TUN devices, one in each namespace, in a thread."""

    def __init__(self, delay, loss, seed=1):
        """`delay`: seconds in each direction; `loss`: share of the packets."""
        self.delay, self.loss, self.cut = delay, loss, False
        self.rng = random.Random(seed)
        self.devices = []
        self.stop = threading.Event()
        self.sent = self.lost = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            names = stack.enter_context(two_namespaces())
            for i, name in enumerate(names):
                self.devices.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
                stack.callback(os.close, self.devices[i])
                device = f"tw{os.getpid()}-{i}"
                fcntl.ioctl(self.devices[i], TUNSETIFF,
                            struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
                run("ip", "link", "set", device, "netns", name)
                run("ip", "-n", name, "link", "set", device, "name", DEVICE)
                run("ip", "-n", name, "link", "set", DEVICE, "mtu", str(MTU))
            bring_up()
            thread = threading.Thread(target=self.forward, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(self.stop.set)
            self.resources = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.resources.close()

    def forward(self):
        number = itertools.count()
        waiting = []  # (time, number, device, packet)
        while not self.stop.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(waiting)
                try:
                    os.write(device, packet)
                except OSError:
                    pass  # a full queue loses packets, as a router's does
            timeout = min(waiting[0][0] - now, 0.1) if waiting else 0.1
            for device in select.select(self.devices, [], [], timeout)[0]:
                self.take(device, waiting, number)

    def take(self, device, waiting, number):
        other = self.devices[1 - self.devices.index(device)]
        for _ in range(64):
            try:
                packet = os.read(device, MTU)
            except BlockingIOError:
                return
            self.sent += 1
            if self.cut or self.rng.random() < self.loss:
                self.lost += 1
                continue
            heapq.heappush(waiting, (time.monotonic() + self.delay, next(number), other, packet))
