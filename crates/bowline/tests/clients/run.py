"""Runs one client program against a gateway: starts a model server, the gateway and the program.

usage: run.py BOWLINE PROGRAM

BOWLINE is the binary, PROGRAM a file of this folder. A .mjs program runs with the Node.js of BOWLINE_TEST_NODE,
or of target/node. The program is told by the environment variable WORLD where everything is, and asks this
runner over HTTP for what it cannot do itself: see `Control`.
"""

import ctypes
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from websockets.sync.client import connect

# Nothing is written beside the sources.
sys.dont_write_bytecode = True

from tap import Tap
from upstream import DEADLINE, Upstream

HERE = pathlib.Path(__file__).resolve().parent
KEY = "a-key-for-the-client-tests"


def node():
    default = HERE.parents[3] / "target" / "node"
    folder = pathlib.Path(os.environ.get("BOWLINE_TEST_NODE", default)).resolve()
    binary = folder / "node_modules" / ".bin" / "node"
    if not binary.exists():
        sys.exit(f"error: {binary} is missing\n\nhint: `make tools` makes it")
    return folder, str(binary)


# A child is told to die with the thread that started it, so one thread that stays starts all of them.
STARTER = ThreadPoolExecutor(1)


def spawn(command, **options):
    """Starts a process that ends when this runner is killed."""
    return STARTER.submit(subprocess.Popen, command, preexec_fn=end_with_parent, **options).result()


def end_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_port():
    """A port that nobody has, below those that the system gives to others: it can be taken again after a kill."""
    while True:
        port = random.randrange(10_000, 30_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue


class Gateway:
    def __init__(self, binary, folder, upstream, servers):
        self.binary, self.data = binary, folder / "data"
        self.config = folder / "config.toml"
        self.config.write_text(settings(upstream, servers))
        self.start(f"127.0.0.1:{free_port()}")

    def start(self, listen):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BOWLINE_")}
        arguments = ["gateway", "run", "--json", "--listen", listen, "--data", self.data, "--config", self.config]
        self.process = spawn([self.binary, *arguments], stdout=subprocess.PIPE, env=environment)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("error: the gateway did not get ready")
        self.url = json.loads(line)["url"].rstrip("/")

    def address(self):
        return urllib.parse.urlsplit(self.url).netloc

    def kill(self):
        self.process.kill()
        self.process.wait()


def settings(upstream, servers):
    """No retries of the gateway's own: those of the client are looked at. No client here half-closes: one that
    closes is gone, and the model server is told soon."""
    lines = ["[auth]", f"api_keys = [{json.dumps(KEY)}]", "[log]", "level = 'error'"]
    lines += ["[limits]", "half_closed = '100ms'"]
    lines += ["[upstream.mock]", f"url = {json.dumps(upstream)}", "retries = 0", 'vision = ["*"]']
    # What the servers' tools do is looked at, not who allows them.
    lines += ["[[tools.rules]]", "policy = 'allow'"]
    for name, server in servers.items():
        lines.append(f"[mcp.servers.{name}]")
        lines += [f"{key} = {toml(value)}" for key, value in server.items()]
    return "\n".join(lines) + "\n"


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + " }"
    # Strings and lists of them are written as in JSON.
    return json.dumps(value)


def control_of(upstream, tap, gateway):
    class Control(BaseHTTPRequestHandler):
        """POST with a JSON body; the answer is JSON.

        reset         forgets prompts and exchanges
        prompts       what the model server was sent, oldest first
        open          opens the gate {"gate"}
        reached       waits until {"times"} requests are at {"gate"}
        gone          waits until the caller of a prompt went away
        requests      waits until {"times"} completion requests of the client were seen
        left          waits until the client went away without an answer
        exchange      the client's last request and what came of it
        visit         a device attaches to {"session", "token"} and leaves; the session is suspended then
        kill, start   the gateway: kill -9; the same port and data
        """

        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
            answer = getattr(self, "do_" + self.path.strip("/"))(**asked)
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_reset(self):
            tap.reset()
            with upstream.lock:
                upstream.prompts.clear()

        def do_prompts(self):
            with upstream.lock:
                return list(upstream.prompts)

        def do_open(self, gate):
            upstream.open(gate)

        def do_reached(self, gate, times=1):
            return upstream.wait(lambda: upstream.reached.get(gate, 0) >= times)

        def do_gone(self):
            return upstream.wait(lambda: any(prompt["gone"] for prompt in upstream.prompts))

        def do_requests(self, times):
            with tap.changed:
                return tap.changed.wait_for(lambda: tap.requests() >= times, DEADLINE)

        def do_left(self):
            with tap.changed:
                return tap.changed.wait_for(lambda: tap.left, DEADLINE)

        def do_exchange(self):
            return tap.last()

        def do_visit(self, session, token):
            with connect(f"ws://{gateway.address()}/v1/sbp/ws/{session}", proxy=None) as device:
                attach = {"type": "ATTACH_SESSION", "session_id": session, "session_token": token}
                device.send(json.dumps(attach))
                assert json.loads(device.recv(DEADLINE))["type"] == "SESSION_ATTACHED"

        def do_kill(self):
            gateway.kill()

        def do_start(self):
            gateway.start(gateway.address())

    return Control


def main():
    binary, program = os.path.abspath(sys.argv[1]), HERE / sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="bowline-clients-") as folder:
        folder = pathlib.Path(folder)
        upstream = Upstream()
        gateway = Gateway(binary, folder, upstream.url, servers_for(program))
        host, port = gateway.address().rsplit(":", 1)
        tap = Tap(host, int(port))
        control = ThreadingHTTPServer(("127.0.0.1", 0), control_of(upstream, tap, gateway))
        control.daemon_threads = True
        threading.Thread(target=control.serve_forever, daemon=True).start()
        world = {
            "base": tap.url,
            "gateway": gateway.url,
            "control_url": f"http://127.0.0.1:{control.server_port}",
            "key": KEY,
            "bowline": binary,
            "folder": str(folder),
        }
        try:
            command, environment = command_of(program)
            environment["WORLD"] = json.dumps(world)
            return spawn(command, env=environment, cwd=folder).wait()
        finally:
            gateway.kill()


def command_of(program):
    environment = dict(os.environ)
    # Nothing of the user's own reaches the clients, and nothing is asked of the network.
    for name in list(environment):
        if name.startswith(("OPENAI_", "LANGCHAIN_", "LANGSMITH_", "LITELLM_")) or name.lower().endswith("_proxy"):
            del environment[name]
    environment.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1")
    if program.suffix == ".py":
        return [sys.executable, "-B", str(program)], environment
    folder, binary = node()
    environment["NODE_ENV_FOLDER"] = str(folder)
    return [binary, "--import", str(HERE / "packages.mjs"), str(program)], environment


def servers_for(program):
    """The MCP servers that the gateway has for this program: one of each SDK, and public ones."""
    if program.name != "mcp_servers.py":
        return {}
    folder, binary = node()
    environment = {"NODE_ENV_FOLDER": str(folder)}
    packages = folder / "node_modules" / "@modelcontextprotocol"
    loader = ["--import", str(HERE / "packages.mjs")]

    def script(name):
        return {"command": binary, "args": [*loader, str(HERE / name)], "env": environment}

    def public(name, *arguments):
        return {"command": binary, "args": [str(packages / name / "dist" / "index.js"), *arguments]}

    port = free_port()
    everything = [binary, packages / "server-everything" / "dist" / "index.js", "streamableHttp"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    spawn(everything, env={**os.environ, "PORT": str(port)}, **quiet)
    return {
        "python": {"command": sys.executable, "args": ["-B", str(HERE / "served.py")]},
        "node1": script("served_1.mjs"),
        "node2": script("served_2.mjs"),
        "everything": public("server-everything", "stdio"),
        "everything-http": {"url": f"http://127.0.0.1:{port}/mcp"},
        "files": public("server-filesystem", str(HERE)),
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
    }


if __name__ == "__main__":
    sys.exit(main())
