"""The Autobahn fuzzing client against a relay's socket.

usage: python2.7 tools/autobahn-relay.py BOWLINE FOLDER [CASE ...]

Starts BOWLINE as a relay with its control plane, connects a daemon that sends everything back, and runs
the cases (those of CASES by default) as clients of that daemon. Leaves the reports in FOLDER and ends with 1 if
any case failed. `make autobahn` brings it together with what it needs.

The fuzzing client sends text and bytes of any kind; a relay passes on binary messages that begin with 13
bytes: type, length and session. So a message that is about to be sent becomes a binary one with
such a beginning. Its length on the wire stays what the case wants, if it has room for that: the lengths at
which a frame's head changes are tried as they are. A message in fragments, whose length nobody knows
before the last, is filled up there. What comes back must be the same bytes, and is given to the case as
the echo that it expects. All else (reserved bits, opcodes, pings, closes, pieces) goes out as it is.
"""

import atexit
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import urllib2

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol, connectWS
from autobahntestsuite import fuzzing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet import reactor

GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")
# 1.1 is the same as 1.2 here; 6 is about text, 12 and 13 about compression, and what is left out of 9 about
# messages over 64 KiB: a relay has none of them.
CASES = ["1.2.*", "2.*", "3.*", "4.*", "5.*", "7.*", "9.1.1", "9.2.1", "9.7.*", "9.8.*", "10.*"]
TEXT, BINARY, CONTINUED = 1, 2, 0
DATA, HEADER = 3, struct.Struct(">BIQ")
# The room of a message in fragments.
FRAGMENTED = 1000
# Seconds for all cases, of which they take five.
PATIENCE = 300


class Relay(object):
    """The relay and its control plane, with one user and one daemon."""

    def __init__(self, bowline):
        self.surroundings = {name: value for name, value in os.environ.items()
                             if not name.startswith("BOWLINE_")}
        self.surroundings.update(XDG_CONFIG_HOME="/nonexistent", BOWLINE_LOG_LEVEL="error")
        data = tempfile.mkdtemp(prefix="bowline-autobahn-")
        self.process = subprocess.Popen(
            [bowline, "relay", "run", "--with-control", "--json", "--listen", "127.0.0.1:0", "--data", data,
             "--rate-frames", "0", "--rate-connections", "0", "--rate-connections-ip", "0"],
            env=self.surroundings, stdout=subprocess.PIPE)
        atexit.register(self.stop)
        ready = json.loads(self.process.stdout.readline())
        self.url, self.control = ready["url"], ready["control"]
        added = subprocess.check_output(
            [bowline, "control", "user", "add", "alice", "--json", "--data", data], env=self.surroundings)
        self.key = json.loads(added)["api_key"]
        key = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        key = base64.urlsafe_b64encode(key).rstrip("=")
        self.daemon = self.ask("/api/daemons/register", {"identityPublicKey": key})

    def ask(self, path, body):
        headers = {"content-type": "application/json", "authorization": "Bearer " + self.key}
        request = urllib2.Request(self.control + path, json.dumps(body), headers)
        return json.load(urllib2.urlopen(request))

    def session(self):
        return self.ask("/api/sessions", {"daemonId": self.daemon["daemonId"]})

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Echo(WebSocketClientProtocol):
    """The daemon: every message of a client goes back to it."""

    def onOpen(self):
        self.factory.ready()

    def onMessage(self, message, binary):
        if ord(message[0]) == DATA:
            self.sendMessage(message, True)


class Client(fuzzing.FuzzingClientProtocol):
    """Runs its case in a session of its own."""

    def connectionMade(self):
        session = self.relay.session()
        number = base64.urlsafe_b64decode(session["sessionId"].encode() + "=")
        self.session, = struct.unpack(">Q", number)
        self.factory.resource = "/relay?token=" + session["token"].encode()
        self.unanswered, self.begun = [], None
        fuzzing.Parent.connectionMade(self)

    def sendMessage(self, payload, isBinary=False, fragmentSize=None, sync=False, doNotCompress=False):
        self.whole = len(payload)
        fuzzing.Parent.sendMessage(self, payload, isBinary, fragmentSize, sync, doNotCompress)
        self.whole = 0

    whole = 0

    def sendFrame(self, opcode, payload="", fin=True, rsv=0, mask=None, payload_len=None, **how):
        if payload_len is not None and payload:
            payload = (payload * (payload_len // len(payload) + 1))[:payload_len]
        sent, was_text = payload, opcode == TEXT
        if opcode in (TEXT, BINARY):
            sent = self.begin(payload, fin)
            self.begun = [opcode == BINARY, [payload], [sent]]
            opcode = BINARY
        elif opcode == CONTINUED and self.begun:
            if fin:
                sent += "." * (self.room - sum(map(len, self.begun[2])) - len(payload))
            self.begun[1].append(payload)
            self.begun[2].append(sent)
        if fin and opcode in (BINARY, CONTINUED) and self.begun:
            binary, payloads, pieces = self.begun
            self.unanswered.append(("".join(payloads), "".join(pieces), binary))
            self.begun = None
        fuzzing.Parent.sendFrame(self, opcode, sent, fin, rsv, mask, None, **how)
        if was_text:
            # A case that counts its frames looks for text.
            self.txFrameStats[TEXT] = self.txFrameStats.get(TEXT, 0) + 1
            self.txFrameStats[BINARY] -= 1

    def begin(self, payload, fin):
        """The first piece of a message, with the header of a relay's frame."""
        if not fin:
            self.room = HEADER.size + max(self.whole, len(payload) + FRAGMENTED)
            return HEADER.pack(DATA, self.room - HEADER.size, self.session) + payload
        rest = payload[HEADER.size:] if len(payload) >= HEADER.size else payload
        return HEADER.pack(DATA, len(rest), self.session) + rest

    def onMessage(self, message, binary):
        assert binary, "a relay sends no text"
        if ord(message[0]) != DATA:
            return  # A control message of the relay, which says why it closes.
        payload, sent, was_binary = self.unanswered.pop(0)
        assert message == sent, "another message came back"
        fuzzing.Parent.onMessage(self, payload, was_binary)


def main(bowline, folder, cases):
    relay = Relay(bowline)
    Client.relay = relay
    fuzzing.Parent, fuzzing.FuzzingClientProtocol = fuzzing.FuzzingClientProtocol, Client
    address = relay.url.encode()

    def start():
        fuzzing.startClient({
            "outdir": folder, "cases": cases or CASES, "exclude-cases": [],
            "exclude-agent-cases": {}, "servers": [{"agent": "relay", "url": address}],
        })

    daemon = WebSocketClientFactory(address + "?token=" + relay.daemon["presenceToken"].encode())
    daemon.protocol, daemon.ready = Echo, start
    connectWS(daemon)
    # A case that fails in this program, and not in the relay, would wait for ever.
    reactor.callLater(PATIENCE, reactor.stop)
    reactor.run()
    with open(os.path.join(folder, "index.json")) as index:
        results = json.load(index)["relay"]
    counts, bad = {}, []
    for case, result in results.items():
        counts[result["behavior"]] = counts.get(result["behavior"], 0) + 1
        if result["behavior"] not in GOOD or result["behaviorClose"] not in GOOD:
            bad.append((case, result["behavior"], result["behaviorClose"]))
    for case, behavior, close in sorted(bad):
        print("%s: %s, close: %s" % (case, behavior, close))
    for case in sorted(case for case in results if results[case]["behavior"] == "NON-STRICT"):
        print("%s: NON-STRICT" % case)
    print("%d cases: %s; %d bad" % (len(results), json.dumps(counts, sort_keys=True), len(bad)))
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
