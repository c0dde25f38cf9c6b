#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mails about incidents: a real controller, a real etcd, and an SMTP server that refuses, stalls and lies."""
import json
import os
import time
import unittest

from lab import until
from mailserver import Mailserver
from pages import CONTROLLERS, PagesCase, coded, make_certificate

POINTS = ("CONNECT", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "END", "QUIT")


class Mails(PagesCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pem = make_certificate(cls.lab, "mail.pem")
        cls.password = cls.lab.write("keys/mail", "s3cret\n")
        os.chmod(cls.password, 0o640)
        cls.mail = Mailserver(cls.pem, user="pager", password="s3cret")
        cls.addClassCleanup(cls.mail.close)

    def setUp(self):
        super().setUp()
        self.mail.forget()

    def to(self, server=None, **more):
        """The settings of a sink that mails through the server."""
        server = server or self.mail
        settings = {"url": server.url, "from": "sdtrain@cluster.example", "to": ["ann@example.org", "bob@example.org"]}
        if server.tls != "off":
            settings["ca_file"] = self.pem + ".cert"
        if server.user:
            settings.update(user="pager", password_file=self.password)
        return dict(settings, **more)

    def said(self, *sinks, **more):
        """What `alerts test` says of each sink: its state and words."""
        self.tell(*sinks, **more)
        _, text = self.cluster.ctl_code("alerts", "test", "-o", "json")
        return {s["sink"]: (s["state"], s["text"]) for s in json.loads(text)["sinks"]}

    def term(self):
        """Of the leader: the revision at which its key was made."""
        self.leader()
        found = self.ask("range", {"key": coded("/sdtrain/dev/leader"), "range_end": coded("/sdtrain/dev/leader0")})
        return min(int(one["create_revision"]) for one in found["kvs"])

    # ---- what is said

    def test_a_mail_and_its_answer(self):
        self.tell(("mail", "email", self.to()), runbook_url="https://wiki/runbooks")
        evidence = "no heartbeat – disk\r\nBcc: eve@example.org\n.\nlast=line "
        self.incident("x-4", evidence=evidence, job="first")
        self.mail.wait(lambda: self.mail.mails, "a mail")
        until(lambda: self.alert("x-4")["deliveries"][0]["state"] == "triggered", "it is stored")
        self.incident("x-4", evidence=evidence, job="first", over=True)
        self.mail.wait(lambda: len(self.mail.mails) == 2, "the mail that it is over")
        opened, resolved = self.mail.mails
        for mail in self.mail.mails:
            self.assertEqual((mail.sender, mail.recipients, mail.tls, mail.user),
                             ("sdtrain@cluster.example", ["ann@example.org", "bob@example.org"], True, "pager"))
            self.assertEqual(str(mail.message["To"]), "ann@example.org, bob@example.org")
            self.assertEqual(str(mail.message["From"]), "sdtrain@cluster.example")
            self.assertEqual(mail.message.get_content_type(), "text/plain")
            self.assertIsNone(mail.message["Bcc"])
            self.assertEqual(mail.message.defects, [])
            self.assertLessEqual(abs(mail.message["Date"].datetime.timestamp() - time.time()), 600)
            self.assertLess(max(map(len, mail.raw.split(b"\r\n"))), 79)
        self.assertEqual(opened.message["Subject"], "[dev] critical: node-lost on n3, job first")
        self.assertEqual(resolved.message["Subject"], "[dev] resolved: node-lost on n3, job first")
        root = "<dev/x-4/%d@cluster.example>" % (self.at // 1000000)
        self.assertEqual((opened.message["Message-ID"], opened.message["References"]), (root, None))
        self.assertEqual((resolved.message["In-Reply-To"], resolved.message["References"]), (root, root))
        self.assertEqual(resolved.message["Message-ID"], root.replace("@", ".resolved@"))
        text = opened.message.get_content().replace("\r\n", "\n")
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.at / 1e6)) + ".%03dZ" % (self.at // 1000 % 1000)
        for words in ("node-lost on n3: no heartbeat – disk  Bcc: eve@example.org . last=line \n\n", "Severity:     critical\nCluster:      dev\nJob:          "
                      "first\nNode:         n3\nRank:         2\nStep:         12, 2 lost\nSince:        " + at,
                      "What to do: Training goes on without the node.", "https://wiki/runbooks/nodes.md#sdtrainnodelost"):
            self.assertIn(words, text)
        self.assertIn("It is over: node-lost", resolved.message.get_content())
        self.assertIn("Over since:", resolved.message.get_content())
        self.assertNotIn("What to do", resolved.message.get_content())

    def test_worse_is_an_answer_too(self):
        self.tell(("mail", "email", self.to()))
        self.incident("x-5", severity="warning", cause="hang")
        self.mail.wait(lambda: self.mail.mails, "a mail")
        until(lambda: self.alert("x-5")["deliveries"][0]["state"] == "triggered", "it is stored")
        self.incident("x-5", severity="critical", cause="hang")
        self.mail.wait(lambda: len(self.mail.mails) == 2, "another one")
        first, worse = [mail.message for mail in self.mail.mails]
        self.assertEqual(worse["References"], first["Message-ID"])
        self.assertEqual(worse["Message-ID"], first["Message-ID"].replace("@", ".critical@"))

    # ---- TLS and who we are

    def test_kinds_of_tls(self):
        smtps = Mailserver(self.pem, tls="smtps")
        plain = Mailserver(tls="off")
        other = Mailserver(make_certificate(self.lab, "other.pem"))
        for server in (smtps, plain, other):
            self.addCleanup(server.close)
        elsewhere = self.mail.url.replace("127.0.0.1", "localhost")
        said = self.said(("starttls", "email", self.to()), ("smtps", "email", self.to(smtps)),
                         ("plain", "email", self.to(plain, tls="off")), ("stripped", "email", self.to(plain)),
                         ("unknown", "email", self.to(other)), ("misnamed", "email", self.to(url=elsewhere)))
        for name in ("starttls", "smtps", "plain"):
            self.assertEqual(said[name], ("resolved", ""), name)
        self.assertRegex(said["stripped"][1], "^the server offers no STARTTLS, so nothing was sent")
        self.assertRegex(said["unknown"][1], "certificate")
        self.assertRegex(said["misnamed"][1], "localhost")
        self.assertEqual((len(self.mail.mails), len(smtps.mails), len(plain.mails), len(other.mails)), (2, 2, 2, 0))
        self.assertEqual((smtps.mails[0].tls, plain.mails[0].tls, other.named("MAIL")), (True, False, []))

    def test_a_password_is_needed(self):
        wrong = self.lab.write("keys/wrong", "0ther\n")
        os.chmod(wrong, 0o600)
        said = self.said(("wrong", "email", self.to(password_file=wrong)))
        self.assertEqual(said["wrong"], ("failed", "SMTP 535: 5.7.8 wrong  [1muser or password"))
        for name in CONTROLLERS:
            self.assertNotIn("0ther", self.log(name))

    # ---- servers that fail

    def test_refusals(self):
        self.mail.expect("RCPT", "550 5.1.1 no such user", "550 5.1.1 no such user")
        said = self.said(("mail", "email", self.to()), retry_max_sec=60)
        self.assertEqual(said["mail"], ("failed", "SMTP 550: 5.1.1 no such user"))
        self.mail.forget()
        self.mail.expect("RCPT", "550 5.1.1 no such user")
        self.assertEqual(self.said(("mail", "email", self.to()))["mail"], ("resolved", ""))
        self.assertEqual([mail.recipients for mail in self.mail.mails],
                         [["bob@example.org"], ["ann@example.org", "bob@example.org"]])
        said = "took the mail, but not for everybody: 550 5.1.1 no such user"
        self.assertTrue(any(said in self.log(name) for name in CONTROLLERS))

    def test_busy_servers_are_tried_again(self):
        for at in ("CONNECT", "MAIL", "END"):
            self.mail.forget()
            self.mail.expect(at, "451 4.3.2 busy", "close")
            self.tell(("mail", "email", self.to()))
            name = "x-" + at.lower()
            self.incident(name)
            self.mail.wait(lambda: self.mail.mails, "it comes in the end")
            self.incident(name, over=True)
            self.settled(name)
            self.assertEqual(len({m.message["Message-ID"] for m in self.mail.mails}), 2)

    def test_a_server_that_stalls_holds_up_nobody(self):
        """At each word that it may keep to itself, for far longer than a leader's lease: other sinks are told at once,
        the leader leads on, and takes a file that names another server."""
        for at in POINTS:
            with self.subTest(at):
                self.sink.forget()
                self.mail.forget()
                self.mail.expect(at, *["stall"] * 8)
                self.tell(("mail", "email", self.to()), ("pager", "pagerduty", {}), timeout_sec=60)
                term = self.term()
                names = ["%s-%d" % (at.lower(), i) for i in range(3)]
                for name in names[:2]:
                    self.incident(name)
                self.mail.wait(lambda: len(self.mail.named(at)) >= 2, "both mails stall")
                self.incident(names[2])
                for name in names:
                    self.wait_opened(name)
                self.assertEqual(self.term(), term)
                self.mail.behaviours.clear()
                self.reload("alerts file read again")
                self.mail.wait(lambda: len({m.message["Message-ID"] for m in self.mail.mails}) >= 3, "mails")
                for name in names:
                    self.incident(name, over=True)
                for name in names:
                    self.settled(name)
                self.assertEqual(self.term(), term, "nobody else had to lead")

    def test_a_mail_has_a_deadline(self):
        """The sink is said to fail, and the mail is tried again, without a word from anybody."""
        for at in ("CONNECT", "EHLO", "END"):
            with self.subTest(at):
                self.mail.forget()
                self.mail.expect(at, "stall", "stall")
                self.tell(("mail", "email", self.to()), timeout_sec=1)
                name = "late-" + at.lower()
                self.incident(name)
                self.mail.wait(lambda: len(self.mail.named(at)) >= 2, "another try")
                self.mail.wait(lambda: self.mail.mails, "it comes")
                self.incident(name, over=True)
                self.settled(name)

    def test_a_leader_that_goes_waits_for_no_server(self):
        """A stop of the controller while a mail hangs."""
        self.mail.expect("END", *["stall"] * 8)
        self.tell(("mail", "email", self.to()), timeout_sec=60)
        self.incident("x-8")
        self.mail.wait(lambda: self.mail.named("END"), "it stalls")
        leader = self.leader()
        began = time.time()
        os.kill(self.pid(leader), 15)
        self.addCleanup(self.begin, self.cluster.start, leader)
        until(lambda: not os.path.exists("/proc/%d" % self.pid(leader)) or self.is_zombie(self.pid(leader)), "it ends")
        print("a leader ends %.1f s after SIGTERM, while a mail hangs" % (time.time() - began))
        self.assertLess(time.time() - began, 30)

    @staticmethod
    def is_zombie(pid):
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"

    # ---- bad files

    def test_bad_files(self):
        readable = self.lab.write("keys/readable", "s3cret\n")
        os.chmod(readable, 0o644)
        good = dict(self.to(), name="mail", kind="email")
        for changes, words in (
                ({"url": "http://h"}, "sinks[0].url: http://h does not begin with smtp:// or smtps:// and a host"),
                ({"url": "smtp://u:p@h"}, "sinks[0].url: has an @: name the user by user and password_file"),
                ({"from": "Ann <ann@h>"}, 'sinks[0].from: "Ann <ann@h>" is not an address'),
                ({"from": "a@h\r\nBcc: eve@h"}, "is not an address"),
                ({"to": ["bob@h", "eve"]}, 'sinks[0].to: "eve" is not an address'),
                ({"to": []}, "sinks[0].to: is empty: nobody would get the mails"),
                ({"to": "bob@h"}, "sinks[0].to: "),
                ({"to": ["bob@h"] * 17}, "sinks[0].to: "),
                ({"user": None}, "sinks[0].user: missing; password_file needs it"),
                ({"password_file": None}, "sinks[0].password_file: missing"),
                ({"password_file": readable}, "sinks[0].password_file: everybody on this host may read " + readable),
                ({"tls": "off"}, "sinks[0].tls: off: the password would be readable on the way"),
                ({"tls": "maybe"}, "sinks[0].tls: maybe is not one of required, off"),
                ({"url": "smtps://h", "tls": "off"}, "sinks[0].tls: off contradicts smtps://h"),
                ({"proxy": "http://p"}, "sinks[0].proxy: unknown key")):
            with self.subTest(changes):
                bad = {key: value for key, value in dict(good, **changes).items() if value is not None}
                path = self.lab.write("bad.json", json.dumps({"sinks": [bad]}))
                code, text = self.lab.run(self.lab.path("bin/sdcontroller"), "--check-config", "--etcd", "h:1",
                                          "--alerts-file", path)
                self.assertEqual(code, 2, text)
                self.assertIn(words, text)
                self.assertNotIn("s3cret", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
