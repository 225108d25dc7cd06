"""The Autobahn fuzzing client against a gateway's surface socket.

usage: python2.7 tools/autobahn-gateway.py BOWLINE FOLDER [CASE ...]

Starts BOWLINE on a fresh data folder, runs the cases (all by default), leaves the reports in
FOLDER and ends with 1 if any case failed. It needs the package autobahntestsuite, which exists
for Python 2.7 only; `make autobahn` brings both together.

The fuzzing client expects an echo. A gateway does not echo: it answers each data message that is
not a frame of the protocol with one PROTOCOL_ERROR, which says whether the message was binary.
So each such answer stands for the echo of the oldest data message without one. That shows
that every message arrived, once, whole and in order; that its bytes arrived unchanged is shown
by the tests in crates/bowline-gateway/tests/it/websocket.rs.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib2

from autobahntestsuite import fuzzing
from twisted.internet import reactor

GOOD = ("OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED")
TEXT, BINARY, CONTINUED = 1, 2, 0


def start(bowline):
    """The gateway and its address. The largest message of the suite has 16 MiB."""
    surroundings = {name: value for name, value in os.environ.items()
                    if not name.startswith("BOWLINE_")}
    surroundings.update(XDG_CONFIG_HOME="/nonexistent", BOWLINE_LOG_LEVEL="error",
                        BOWLINE_LIMITS_SURFACE_MESSAGE=str(16 << 20))
    command = [bowline, "gateway", "run", "--json", "--listen", "127.0.0.1:0",
               "--data", tempfile.mkdtemp(prefix="bowline-autobahn-")]
    gateway = subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE)
    return gateway, json.loads(gateway.stdout.readline())["url"]


def session(url):
    headers = {"content-type": "application/json"}
    return json.load(urllib2.urlopen(urllib2.Request(url + "/v1/sessions", "{}", headers)))


class Surface(fuzzing.FuzzingClientProtocol):
    """Attaches first, then runs its case, with answers in the place of echoes."""

    welcome = None

    def onOpen(self):
        self.unanswered, self.begun = [], None
        self.sendMessage(json.dumps(self.hello))

    def sendFrame(self, opcode, payload="", fin=True, rsv=0, mask=None, payload_len=None, **how):
        if opcode in (TEXT, BINARY):
            self.begun = (opcode == BINARY, [])
        if opcode in (TEXT, BINARY, CONTINUED) and self.begun:
            repeated = payload
            if payload_len is not None and payload:
                repeated = (payload * (payload_len // len(payload) + 1))[:payload_len]
            self.begun[1].append(repeated)
            if fin:
                self.unanswered.append(("".join(self.begun[1]), self.begun[0]))
                self.begun = None
        fuzzing.Parent.sendFrame(self, opcode, payload, fin, rsv, mask, payload_len, **how)

    def onMessage(self, text, binary):
        frame = json.loads(text)
        if self.welcome is None:
            assert frame["type"] == "SESSION_ATTACHED", frame
            self.welcome, self.unanswered = frame, []
            # A case that counts its frames must not count the hello.
            self.txFrameStats = {}
            return fuzzing.Parent.onOpen(self)
        assert frame["type"] == "PROTOCOL_ERROR" and not binary, frame
        payload, was_binary = self.unanswered.pop(0)
        assert was_binary == ("not binary" in frame["detail"]), frame
        fuzzing.Parent.onMessage(self, payload, was_binary)


def main(bowline, folder, cases):
    gateway, url = start(bowline)
    try:
        made = session(url)
        Surface.hello = {"type": "ATTACH_SESSION", "session_id": made["session_id"],
                         "session_token": made["session_token"]}
        fuzzing.Parent, fuzzing.FuzzingClientProtocol = fuzzing.FuzzingClientProtocol, Surface
        address = url.replace("http", "ws", 1) + "/v1/sbp/ws/" + made["session_id"]
        fuzzing.startClient({
            "outdir": folder, "cases": cases or ["*"], "exclude-cases": [],
            "exclude-agent-cases": {}, "servers": [{"agent": "bowline", "url": address}],
        })
        reactor.run()
    finally:
        gateway.kill()
        gateway.wait()
    with open(os.path.join(folder, "index.json")) as index:
        results = json.load(index)["bowline"]
    counts, bad = {}, []
    for case, result in results.items():
        counts[result["behavior"]] = counts.get(result["behavior"], 0) + 1
        if result["behavior"] not in GOOD or result["behaviorClose"] not in GOOD:
            bad.append((case, result["behavior"], result["behaviorClose"]))
    for case, behavior, close in sorted(bad):
        print("%s: %s, close: %s" % (case, behavior, close))
    print("%d cases: %s; %d bad" % (len(results), json.dumps(counts, sort_keys=True), len(bad)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
