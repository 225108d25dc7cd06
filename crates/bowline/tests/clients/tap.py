"""A TCP proxy before the gateway. It passes all bytes on as they are, and keeps them as evidence.

A client that sends a request again is seen here, and nowhere else.
"""

import socket
import threading


class Tap:
    def __init__(self, host, port):
        self.target = (host, port)
        self.changed = threading.Condition()
        self.exchanges = []
        # Clients that went away without an answer.
        self.left = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def requests(self, path="/v1/chat/completions"):
        line = f"POST {path} ".encode()
        return sum(bytes(asked).count(line) for asked, _ in self.exchanges)

    def last(self):
        """The last request and what came of it, as text."""
        with self.changed:
            asked, answered = self.exchanges[-1] if self.exchanges else (b"", b"")
            return bytes(asked).decode(errors="replace"), bytes(answered).decode(errors="replace")

    def reset(self):
        with self.changed:
            self.exchanges.clear()
            self.left = 0

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        try:
            gateway = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        # What this connection carries now: it is replaced when the next request begins.
        current = [None]
        threading.Thread(target=self.answers, args=(client, gateway, current), daemon=True).start()
        refused = False
        for data in received(client):
            self.keep(current, 0, data)
            # A gateway that answers before it has the whole request may be gone already: the client still reads.
            refused = refused or not sent(gateway, data)
        with self.changed:
            self.left += current[0] is not None and not current[0][1]
            self.changed.notify_all()
        # A client that closes is gone, not only silent.
        shut(gateway, socket.SHUT_RDWR)
        client.close()

    def answers(self, client, gateway, current):
        for data in received(gateway):
            self.keep(current, 1, data)
            if not sent(client, data):
                break
        shut(client, socket.SHUT_WR)
        gateway.close()

    def keep(self, current, side, data):
        with self.changed:
            exchange = current[0]
            if exchange is None or (side == 0 and data.startswith((b"POST ", b"GET "))):
                exchange = current[0] = (bytearray(), bytearray())
                self.exchanges.append(exchange)
            exchange[side].extend(data)
            self.changed.notify_all()


def received(source):
    try:
        while data := source.recv(65536):
            yield data
    except OSError:
        pass


def sent(sink, data):
    try:
        sink.sendall(data)
        return True
    except OSError:
        return False


def shut(end, how):
    try:
        end.shutdown(how)
    except OSError:
        pass
