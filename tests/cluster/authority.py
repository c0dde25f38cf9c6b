# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for tests, by openssl: one per lab, in a folder of it."""
import os
import subprocess


class Authority:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder)
        self._openssl("req", "-x509", *self._new_key("ca"), "-days", "2", "-subj", "/CN=test authority",
                      "-out", self.path("ca.pem"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def issue(self, name, common_name, usage, addresses=()):
        """<name>.pem and <name>.key; usage: serverAuth, clientAuth or both."""
        self._openssl("req", *self._new_key(name), "-subj", "/CN=" + common_name, "-out", self.path(name + ".csr"))
        with open(self.path(name + ".ext"), "w") as file:
            file.write("extendedKeyUsage=%s\n" % usage)
            if addresses:
                file.write("subjectAltName=%s\n" % ",".join(addresses))
        self._openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path("ca.pem"), "-CAkey",
                      self.path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", self.path(name + ".ext"),
                      "-out", self.path(name + ".pem"))

    def _new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                self.path(name + ".key")]

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       stdin=subprocess.DEVNULL)
