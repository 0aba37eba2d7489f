"""A link between two network namespaces that delays and loses packets and can be cut, because not every kernel has
netem. Needs root, iproute2 and /dev/net/tun."""

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


def missing():
    """What this machine lacks; empty: nothing."""
    if os.geteuid() != 0:
        return "needs root"
    return "" if os.path.exists("/dev/net/tun") else "needs /dev/net/tun"


class EmulatedLink:
    """Forwards the packets of two TUN devices, one in each namespace, in a thread."""

    def __init__(self, delay, loss, seed=1):
        """`delay`: seconds in each direction; `loss`: share of the packets."""
        self.delay, self.loss, self.cut = delay, loss, False
        self.namespaces = [f"tilewright-{os.getpid()}-{i}" for i in range(2)]
        self.addresses = ["10.78.0.1", "10.78.0.2"]
        self.rng = random.Random(seed)
        self.devices = []
        self.stop = threading.Event()
        self.sent = self.lost = 0

    def __enter__(self):
        try:
            for i, name in enumerate(self.namespaces):
                self.devices.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
                device = f"tw{os.getpid()}-{i}"
                fcntl.ioctl(self.devices[i], TUNSETIFF,
                            struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
                run("ip", "netns", "add", name)
                run("ip", "link", "set", device, "netns", name)
                run("ip", "-n", name, "link", "set", device, "name", "eth0")
                run("ip", "-n", name, "address", "add", f"{self.addresses[i]}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "mtu", str(MTU), "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
            self.thread = threading.Thread(target=self.forward, daemon=True)
            self.thread.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.remove()

    def remove(self):
        for device in self.devices:
            os.close(device)
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

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
