"""One network link between two network namespaces, with a rate, a delay, loss, or nothing at all.

usage: python3 link.py PID-A NAME-A PID-B NAME-B

Makes a TUN device NAME-A in the namespace of process PID-A, and one in that of PID-B, and carries IP
packets between them. Kernels are built without netem more often than without TUN, so the link is made
here. It says "ready", then reads commands from stdin, one line of JSON each, and answers "ok":

    {"a_to_b": {"rate": 30000, "delay": 0.05, "loss": 0.02, "dead": false}, "b_to_a": {}}

rate: bytes a second; delay: seconds one way; loss: share of packets; dead: every packet is dropped, those
under way, too. A queue of a quarter of a second (20 packets at least) waits for a slow link; what comes to a
full queue is dropped, as a router does it. Ends when stdin does, and the devices are gone with it.
"""

import collections
import ctypes
import fcntl
import json
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MTU = 1500


def device(pid, name):
    """A TUN device in the network namespace of a process. The kernel segments and adds checksums."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/%s/ns/net" % pid) as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


class Direction:
    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.queue, self.queued, self.free_at = collections.deque(), 0, 0.0
        self.set({})

    def set(self, shape):
        self.rate = shape.get("rate")
        self.delay = shape.get("delay", 0.0)
        self.loss = shape.get("loss", 0.0)
        self.dead = shape.get("dead", False)
        self.room = max(20 * MTU, self.rate // 4) if self.rate else 1 << 26
        self.free_at = time.monotonic()
        if self.dead:
            self.queue.clear()
            self.queued = 0

    def read(self):
        """Takes the packets that the device has, a few hundred at most."""
        for _ in range(256):
            try:
                packet = os.read(self.source, 65536)
            except BlockingIOError:
                return
            if self.dead or (self.loss and random.random() < self.loss):
                continue
            if self.queued + len(packet) > self.room:
                continue
            now = time.monotonic()
            if self.rate:
                self.free_at = max(now, self.free_at) + len(packet) / self.rate
            else:
                self.free_at = now
            self.queue.append((self.free_at + self.delay, packet))
            self.queued += len(packet)

    def write(self, now):
        while self.queue and self.queue[0][0] <= now:
            _, packet = self.queue.popleft()
            self.queued -= len(packet)
            try:
                os.write(self.sink, packet)
            except OSError:
                pass  # The device's queue is full or it is down: lost, as on any link.


def main(pid_a, name_a, pid_b, name_b):
    a, b = device(pid_a, name_a), device(pid_b, name_b)
    directions = {"a_to_b": Direction(a, b), "b_to_a": Direction(b, a)}
    by_source = {a: directions["a_to_b"], b: directions["b_to_a"]}
    print("ready", flush=True)
    pending = b""
    while True:
        now = time.monotonic()
        for direction in directions.values():
            direction.write(now)
        dues = [direction.queue[0][0] for direction in directions.values() if direction.queue]
        wait = max(0.0, min(dues) - time.monotonic()) if dues else None
        for readable in select.select([0, a, b], [], [], wait)[0]:
            if readable != 0:
                by_source[readable].read()
                continue
            read = os.read(0, 65536)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            for line in lines:
                for name, shape in json.loads(line).items():
                    directions[name].set(shape)
                print("ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
