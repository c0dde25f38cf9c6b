# SPDX-License-Identifier: Apache-2.0
"""An SMTP server that does as it is told, and keeps the mails that it took.

Behaviours, one for each time that a command comes, then as it should be: a text is the reply instead ("550 no such
user"); "stall" answers when the server is closed or forgets; "close" hangs up. Commands: CONNECT, EHLO, STARTTLS, AUTH,
MAIL, RCPT, DATA, END (of a message), QUIT.
"""
import base64
import collections
import email
import email.policy
import socket
import ssl
import threading

Mail = collections.namedtuple("Mail", "sender recipients message tls user raw")


class Mailserver:
    def __init__(self, certificate=None, tls="starttls", user=None, password=None):
        """certificate: a PEM file with the key. tls: "starttls", "smtps" or "off". user: must authenticate."""
        self.lock = threading.Condition()
        self.mails, self.commands = [], []  # commands: (command, argument)
        self.behaviours = collections.defaultdict(collections.deque)
        self.closed = threading.Event()
        self.tls, self.user, self.password = tls, user, password
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if certificate:
            self.context.load_cert_chain(certificate)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = "%s://127.0.0.1:%d" % ("smtps" if tls == "smtps" else "smtp", self.port)
        threading.Thread(target=self.run, daemon=True).start()

    def close(self):
        self.closed.set()
        self.socket.close()

    def forget(self):
        """As new, with what still stalls let go."""
        with self.lock:
            self.closed.set()
            self.closed = threading.Event()
            self.mails.clear()
            self.commands.clear()
            self.behaviours.clear()

    def expect(self, command, *behaviours):
        with self.lock:
            self.behaviours[command].extend(behaviours)

    def wait(self, condition, what, timeout=60):
        with self.lock:
            if not self.lock.wait_for(condition, timeout):
                raise AssertionError("not within %d s: %s; %s, %d mails" % (timeout, what, self.commands[-30:],
                                                                            len(self.mails)))
            return condition()

    def named(self, command):
        with self.lock:
            return [argument for name, argument in self.commands if name == command]

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        session = Session(self, connection)
        try:
            session.run()
        except (OSError, EOFError):
            pass  # whoever called may be gone
        finally:
            session.socket.close()


class Session:
    def __init__(self, server, connection):
        self.server, self.socket = server, connection
        self.file = connection.makefile("rb")
        self.secure, self.login = False, None
        self.sender, self.recipients = None, []

    def secured(self):
        self.file.close()
        self.socket = self.server.context.wrap_socket(self.socket, server_side=True)
        self.secure = True
        self.file = self.socket.makefile("rb")

    def say(self, *lines):
        for i, line in enumerate(lines):
            if i + 1 < len(lines):
                line = line[:3] + "-" + line[4:]
            self.socket.sendall(line.encode() + b"\r\n")

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def told(self, command, argument):
        """Does what the test wants instead of answering; whether it did. A stall ends with the connection."""
        server = self.server
        with server.lock:
            server.commands.append((command, argument))
            queue = server.behaviours[command]
            behaviour = queue.popleft() if queue else None
            closed = server.closed
            server.lock.notify_all()
        if behaviour == "stall":
            closed.wait()
        if behaviour in ("stall", "close"):
            raise EOFError
        if behaviour:
            self.say(behaviour)
        return bool(behaviour)

    def run(self):
        if self.server.tls == "smtps":
            self.secured()
        if not self.told("CONNECT", ""):
            self.say("220 here")
        while True:
            command, _, argument = self.line().decode().strip().partition(" ")
            command = command.upper()
            if self.told(command, argument):
                continue
            if not hasattr(self, "on_" + command.lower()):
                self.say("502 what?")
            elif getattr(self, "on_" + command.lower())(argument):
                return

    def on_ehlo(self, _):
        more = []
        if self.server.tls == "starttls" and not self.secure:
            more.append("250 STARTTLS")
        if self.server.user:
            more.append("250 AUTH PLAIN")
        self.say("250 here", *more, "250 SIZE 100000")

    def on_starttls(self, _):
        self.say("220 go on")
        self.secured()

    def on_auth(self, argument):
        kind, _, secret = argument.partition(" ")
        if not secret:
            self.say("334 ")
            secret = self.line().decode().strip()
        _, user, password = base64.b64decode(secret).decode().split("\0")
        if (kind, user, password) != ("PLAIN", self.server.user, self.server.password):
            self.say("535 5.7.8 wrong \x1b[1muser or password")
            return
        self.login = user
        self.say("235 welcome")

    def on_mail(self, argument):
        if self.server.user and not self.login:
            self.say("530 5.7.0 who are you?")
            return
        self.sender, self.recipients = argument.partition("<")[2].partition(">")[0], []
        self.say("250 fine")

    def on_rcpt(self, argument):
        self.recipients.append(argument.partition("<")[2].partition(">")[0])
        self.say("250 fine")

    def on_data(self, _):
        self.say("354 go on")
        lines = []
        while True:
            line = self.line()
            if line == b".\r\n":
                break
            lines.append(line[1:] if line.startswith(b".") else line)
        if self.told("END", ""):
            return
        raw = b"".join(lines)
        with self.server.lock:
            self.server.mails.append(Mail(self.sender, self.recipients,
                                          email.message_from_bytes(raw, policy=email.policy.default), self.secure,
                                          self.login, raw))
            self.server.lock.notify_all()
        self.say("250 taken")

    def on_quit(self, _):
        self.say("221 bye")
        return True
