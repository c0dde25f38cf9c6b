#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages, unpacked: what is in them, what a machine can check of it, and that documents and programs name the
same settings. Installing, upgrading and purging on hosts with systemd is tests/cluster's part."""
import glob
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(os.environ.get("SDTRAIN_BUILD") or os.path.join(os.path.dirname(__file__), "../../build/release"))
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.path.join(BUILD, "bin")
MODULE = os.path.join(BUILD, "cuda/libsdtrain-cuda.so")  # where it is built
sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
import dataset  # noqa: E402

PROGRAMS = {"sdtraind": "node", "sdtrainer": "node", "sdtrain-exec": "node", "sdcontroller": "controller", "sdctl": "ctl", "sdprep": "ctl"}
EXEC_UNITS = ("sdtrain-exec.socket", "sdtrain-exec@.service", "sdtrain-exec.slice")


def run(*words, check=True, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if check and done.returncode != 0:
        raise AssertionError("%s: %d\n%s" % (" ".join(words), done.returncode, done.stdout))
    return done.stdout if check else (done.returncode, done.stdout)


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def settings_of(program):
    """Keys of its table, as --help lists them."""
    text = run(os.path.join(BIN, program), "--help")
    return [key.replace("-", "_") for key in re.findall(r"^ +--([a-z0-9-]+) ", text.split("--help, --version")[1], re.M)]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="sdtrain-package-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.tree = os.path.join(cls.folder, "tree")
        run("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", os.path.join(cls.folder, "made"))
        cls.control, cls.files = {}, {}
        for deb in glob.glob(os.path.join(cls.folder, "made", "*.deb")):
            name = run("dpkg-deb", "-f", deb, "Package").strip()
            cls.control[name] = os.path.join(cls.folder, name)
            run("dpkg-deb", "-e", deb, cls.control[name])
            run("dpkg-deb", "-x", deb, cls.tree)
            cls.files[name] = {line.split(None, 5)[5][1:].rstrip("/"): line.split(None, 2)[:2]
                               for line in run("dpkg-deb", "-c", deb).splitlines()}

    def field(self, package, name):
        found = re.search("^%s: (.*)$" % name, read(self.control[package], "control"), re.M)
        return found.group(1) if found else ""

    def test_what_is_where(self):
        made = {"sdtrain-common", "sdtrain-node", "sdtrain-controller", "sdtrain-ctl"}
        self.assertEqual(set(self.files), made | ({"sdtrain-cuda"} if os.path.exists(MODULE) else set()))
        for program, component in PROGRAMS.items():
            files = self.files["sdtrain-" + component]
            self.assertIn("/usr/bin/" + program, files)
            section = "8" if component in ("node", "controller") and program not in ("sdtrainer", "sdtrain-exec") else "1"
            self.assertIn("/usr/share/man/man%s/%s.%s.gz" % (section, program, section), files)
        for daemon in ("sdtraind", "sdcontroller"):
            files = self.files["sdtrain-" + PROGRAMS[daemon]]
            for path in ("/usr/lib/systemd/system/%s.service", "/etc/sdtrain/%s.json", "/usr/share/man/man5/%s.json.5.gz"):
                self.assertIn(path % daemon, files)
            self.assertEqual(files["/etc/sdtrain/%s.credentials" % daemon][0], "drwx------", "secrets are root's")
        for unit in EXEC_UNITS:
            self.assertIn("/usr/lib/systemd/system/" + unit, self.files["sdtrain-node"])
        for name in ("sdtrain-exec", "sdtrain-groups"):
            self.assertIn("/usr/lib/sysusers.d/%s.conf" % name, self.files["sdtrain-node"])
        for path in ("/usr/lib/sysusers.d/sdtrain.conf", "/usr/lib/tmpfiles.d/sdtrain.conf",
                     "/usr/lib/systemd/catalog/sdtrain.catalog", "/usr/share/man/man5/sdtrain-job.5.gz",
                     *("/usr/share/man/man7/sdtrain%s.7.gz" % page for page in ("", "-metrics", "-records")),
                     "/usr/share/doc/sdtrain-common/copyright", "/usr/share/doc/sdtrain-common/README.md",
                     "/usr/share/doc/sdtrain-common/docs/operating/runbooks/nodes.md",
                     "/usr/share/doc/sdtrain-common/docs/reference/settings.md", "/usr/share/sdtrain/systemd/addresses.conf"):
            self.assertIn(path, self.files["sdtrain-common"])
        self.assertIn("/usr/share/bash-completion/completions/sdctl", self.files["sdtrain-ctl"])
        self.assertIn("/usr/share/zsh/vendor-completions/_sdctl", self.files["sdtrain-ctl"])
        self.assertIn("/usr/share/fish/vendor_completions.d/sdctl.fish", self.files["sdtrain-ctl"])

    def test_documents_of_each(self):
        """What Debian's users look for in /usr/share/doc: what changed, whose it is, and what to do next."""
        for package in self.files:
            folder = "/usr/share/doc/%s/" % package
            for name in ("copyright", "changelog.gz", "README.Debian"):
                self.assertIn(folder + name, self.files[package])
            self.assertTrue(read(self.tree + folder + "README.Debian").startswith(package + " for Debian\n"
                            if package != "sdtrain-common" else "sdtrain for Debian\n"))
        with gzip.open(self.tree + "/usr/share/doc/sdtrain-node/changelog.gz", "rt") as file:
            told = file.read()
        path = os.path.join(self.folder, "changelog")
        with open(path, "w") as file:
            file.write(told)
        self.assertEqual(run("dpkg-parsechangelog", "-l", path, "-S", "Maintainer").strip(), self.field("sdtrain-node", "Maintainer"))
        self.assertNotIn("warning", run("dpkg-parsechangelog", "-l", path, "--all"))
        versions = re.findall(r"^sdtrain \(([^)]*)\)", told, re.M)
        self.assertEqual([v for v in versions if "+" not in v], re.findall(r"^## ([0-9.]+)", read(SOURCE, "CHANGELOG.md"), re.M))
        words = re.findall(r"\S+", re.sub(r"(?m)^(- |#.*)", "", read(SOURCE, "CHANGELOG.md").split("## ", 1)[1].split("\n", 1)[1]))
        body = re.findall(r"\S+", re.sub(r"(?m)^(sdtrain \(.*| -- .*|  \* )", "", told))
        self.assertEqual(body, words, "nothing is lost between the two")

    def test_example_is_a_job(self):
        """It trains once the paths are there, which README.Debian of sdtrain-ctl makes."""
        examples = os.path.join(self.tree, "usr/share/doc/sdtrain-common/examples")
        place = os.path.join(self.folder, "srv")
        os.makedirs(place)
        shutil.copy(os.path.join(examples, "unet.json"), place)
        dataset.write(os.path.join(place, "openclipart"), 24, 1, text=(77, 64))
        job = os.path.join(place, "job.json")
        with open(job, "w") as file:
            file.write(read(examples, "job.json").replace("/srv/sdtrain", place).replace("/var/cache/sdtrain", place + "/cache"))
        run(os.path.join(BIN, "sdtrainer"), "plan", "--job", job)
        settings = json.loads(read(self.tree, "etc/sdtrain/sdtraind.json"))
        for path in re.findall(r'"(/[^"]*)"', read(examples, "job.json")):
            self.assertTrue(any((path + "/").startswith(p + "/") for p in settings["paths_write"]), "a node would refuse " + path)

    @unittest.skipUnless(shutil.which("lintian"), "lintian is not here; ops/packages recipes installs it")
    def test_lintian(self):
        code, text = run("lintian", *(["--allow-root"] if os.geteuid() == 0 else []), "--fail-on", "error",
                         *glob.glob(os.path.join(self.folder, "made", "*.deb")), check=False)
        self.assertEqual(code, 0, text)

    def test_owners_and_modes(self):
        seen = {}
        for package, files in self.files.items():
            for path, (mode, owner) in files.items():
                self.assertEqual(owner, "root/root", path)
                self.assertNotIn("w", mode[5:6] + mode[8:9], path)
                if not mode.startswith("d"):
                    self.assertNotIn(path, seen, "in %s, too" % seen.get(path))
                    seen[path] = package
                    self.assertEqual("x" in mode, path.startswith("/usr/bin/") or path.endswith(("/etcd-roles", "/node-configured.sh", "/sdtrain.sbatch")), path)

    def test_control(self):
        version = re.search(r"project\(sdtrain VERSION ([0-9.]+)", read(SOURCE, "CMakeLists.txt")).group(1)
        for package in self.control:
            self.assertEqual(self.field(package, "Version"), version)
            self.assertRegex(self.field(package, "Maintainer"), r".+ <.+@.+>")
            self.assertLessEqual(len(self.field(package, "Description")), 80)
            for line in read(self.control[package], "control").splitlines():
                self.assertFalse(line.startswith("  "), "a description is paragraphs, not verbatim: " + line)
            in_etc = sorted(p for p, (mode, _) in self.files[package].items() if p.startswith("/etc") and mode[0] == "-")
            conffiles = os.path.join(self.control[package], "conffiles")
            self.assertEqual(read(conffiles).split() if os.path.exists(conffiles) else [], in_etc)
            run("md5sum", "--quiet", "-c", os.path.join(self.control[package], "md5sums"), cwd=self.tree)
        for program, component in PROGRAMS.items():
            package = "sdtrain-" + component
            self.assertIn("libc6 (>= ", self.field(package, "Depends"))
            self.assertNotIn(".debug_info", run("readelf", "-SW", os.path.join(self.tree, "usr/bin", program)))
            if program in ("sdtraind", "sdcontroller", "sdctl"):
                self.assertEqual(run(os.path.join(BIN, program), "--version").strip(), "%s %s" % (program, version))
                self.assertIn("libgrpc", self.field(package, "Depends"))
        for package in ("sdtrain-node", "sdtrain-controller"):
            self.assertIn("sdtrain-common", self.field(package, "Depends"))

    @unittest.skipUnless(os.path.exists(MODULE), "the CUDA module is not built here")
    def test_cuda(self):
        """The module lies where the trainer looks for it, with its plans, and asks for no library of NVIDIA's."""
        module = "/usr/lib/sdtrain/libsdtrain-cuda.so"
        files = self.files["sdtrain-cuda"]
        self.assertIn(module, files)
        plans = {"/usr/lib/sdtrain/plans/" + os.path.basename(path)
                 for path in glob.glob(os.path.join(SOURCE, "kernels/cuda/plans/*.json"))}
        self.assertEqual({path for path in files if path.endswith(".json")}, plans)
        depends = self.field("sdtrain-cuda", "Depends")
        self.assertIn("sdtrain-node (= %s)" % self.field("sdtrain-node", "Version"), depends)
        self.assertNotRegex(depends, "cuda|cudnn|cublas|nvidia")
        path = self.tree + module
        self.assertNotRegex(run("readelf", "-dW", path), r"NEEDED.*(cuda|cudnn|cublas)")
        self.assertIn("GNU_RELRO", run("readelf", "-lW", path))
        defined = run("nm", "-D", "--defined-only", path).split()[2::3]
        self.assertEqual(defined, ["sdtrain_kernels_backend"])
        # What a trainer that lies there finds is this one: without a GPU it says what this machine lacks.
        trainer = os.path.join(self.tree, "usr/bin/sdtrainer")
        self.assertTrue(os.path.samefile(os.path.join(os.path.dirname(trainer), "../lib/sdtrain/libsdtrain-cuda.so"), path))

    def test_programs_are_hardened(self):
        for program in PROGRAMS:
            path = os.path.join(self.tree, "usr/bin", program)
            self.assertRegex(run("readelf", "-dW", path), r"FLAGS_1.*NOW.*PIE", "bound at the start, anywhere in memory")
            self.assertIn("GNU_RELRO", run("readelf", "-lW", path))
            symbols = run("readelf", "--dyn-syms", "-W", path)
            self.assertRegex(symbols, r"__(snprintf|printf|fprintf|vsnprintf)_chk", "checked copies")
            self.assertIn("__stack_chk_fail", symbols)
            if os.uname().machine == "x86_64":
                self.assertIn("endbr64", run("objdump", "-d", "--no-show-raw-insn", "-j", ".text", path)[:1 << 20])

    def test_maintainer_scripts(self):
        n = 0
        for package, folder in self.control.items():
            for name in ("preinst", "postinst", "prerm", "postrm"):
                script = os.path.join(folder, name)
                if not os.path.exists(script):
                    continue
                n += 1
                self.assertEqual(stat.S_IMODE(os.stat(script).st_mode), 0o755, script)
                text = read(script)
                self.assertTrue(text.startswith("#!/bin/sh\n") and "\nset -e\n" in text, script)
                run("sh", "-n", script)
        self.assertGreaterEqual(n, 8)
        scripts = "".join(read(path) for path in glob.glob(os.path.join(self.control["sdtrain-node"], "p*")))
        self.assertNotRegex(re.sub(r'echo ".*"|#.*|stop sdtrain-exec.slice sdtrain.slice', "", scripts), "restart|stop|start ",
                            "ranks outlive an upgrade")

    def test_units(self):
        units = os.path.join(self.tree, "usr/lib/systemd/system")
        daemon, controller = read(units, "sdtraind.service"), read(units, "sdcontroller.service")
        for text in (daemon, controller):
            self.assertNotRegex(text, "@[A-Z]+@")
            for line in ("Type=notify", "NotifyAccess=main", "Restart=on-failure", "RestartPreventExitStatus=2",
                         "User=sdtrain", "NoNewPrivileges=yes", "LimitCORE=0"):
                self.assertIn("\n%s\n" % line, text)
            self.assertRegex(text, r"\nWatchdogSec=\d+\n")
        for line in ("KillMode=mixed", "Delegate=yes", "OOMPolicy=continue"):
            self.assertIn("\n%s\n" % line, daemon)
        drain = int(re.search(r"drain-sec .*\((\d+)\)", run(os.path.join(BIN, "sdtraind"), "--help")).group(1))
        self.assertGreater(int(re.search(r"\nTimeoutStopSec=(\d+)\n", daemon).group(1)), drain + 10)
        # The exposure that systemd computes, times ten: what must hold for the controller, what the daemon reaches.
        for unit, threshold in (("sdcontroller.service", 30), ("sdtraind.service", 30), ("sdtrain-exec@.service", 65)):
            code, text = run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=%d" % threshold,
                             os.path.join(units, unit), check=False)
            self.assertEqual(code, 0, text)
            self.assertNotIn("Unknown", text)

    def test_units_say_what_systemd_knows(self):
        """Words that this systemd does not know it ignores with a message."""
        units = os.path.join(self.tree, "usr/lib/systemd/system")
        for unit in ("sdtraind.service", "sdcontroller.service", *EXEC_UNITS):
            _, text = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", os.path.join(units, unit),
                          check=False, env=dict(os.environ, SYSTEMD_LOG_LEVEL="warning"))
            ours = [line for line in text.splitlines() if unit in line and "is not executable" not in line]
            self.assertEqual(ours, [])

    def test_units_of_programs(self):
        """Programs of jobs: sdtraind alone starts them, as a user who can read nothing of it, and a unit's end is theirs."""
        units = os.path.join(self.tree, "usr/lib/systemd/system")
        connection, service = read(units, "sdtrain-exec.socket"), read(units, "sdtrain-exec@.service")
        for line in ("ListenSequentialPacket=/run/sdtrain-exec.sock", "SocketUser=sdtrain", "SocketMode=0600", "Accept=yes"):
            self.assertIn("\n%s\n" % line, connection)
        for line in ("User=sdtrain-exec", "KillMode=control-group", "KillSignal=SIGKILL", "WatchdogSignal=SIGKILL",
                     "Delegate=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "Slice=sdtrain-exec.slice",
                     "ExecStart=/usr/bin/sdtrain-exec host", "Before=sdtraind.service"):
            self.assertIn("\n%s\n" % line, service)
        self.assertRegex(service, r"\nWatchdogSec=\d+\n")
        self.assertIn("\nWants=sdtrain-exec.socket\n", read(units, "sdtraind.service"))
        settings = json.loads(read(self.tree, "etc/sdtrain/sdtraind.json"))
        self.assertEqual(settings["exec_user"], "sdtrain-exec")
        self.assertNotIn("allow_exec", settings)
        text = run(os.path.join(BIN, "sdtraind"), "--help")
        self.assertIn("(/run/sdtrain-exec.sock)", text)
        self.assertIn("(/sdtrain.slice/sdtrain-exec.slice)", text)

    def test_user(self):
        os.makedirs(self.tree + "/etc/sysusers.d", exist_ok=True)
        with open(self.tree + "/etc/sysusers.d/sdtrain.conf", "w") as file:
            file.write("u sdtrain 990\n")  # as the page on installation says
        names = re.search("^ *systemd-sysusers (.*)$", read(self.control["sdtrain-node"], "postinst"), re.M).group(1).split()
        run("systemd-sysusers", "--root=" + self.tree, *names)
        groups = dict(line.split(":")[::3] for line in read(self.tree, "etc/group").splitlines())
        for group in ("video", "render"):
            self.assertEqual(sorted(groups[group].split(",")), ["sdtrain", "sdtrain-exec"])
        lines = [re.search("^%s:.*$" % name, read(self.tree, "etc/passwd"), re.M).group(0).split(":")
                 for name in ("sdtrain", "sdtrain-exec")]
        self.assertNotEqual(lines[0][2], lines[1][2])
        for line in lines:
            self.assertNotEqual(line[2], "0")
            self.assertEqual(line[6], "/usr/sbin/nologin")

    def test_settings_that_are_installed(self):
        etc = os.path.join(self.tree, "etc/sdtrain")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SDTRAIN_ETCD")}
        code, text = run(os.path.join(BIN, "sdcontroller"), "--config", etc + "/sdcontroller.json", "--check-config",
                         check=False, env=environment)
        self.assertEqual(code, 0, text)
        code, text = run(os.path.join(BIN, "sdtraind"), "--config", etc + "/sdtraind.json", "--check-config",
                         check=False, env=environment)
        self.assertEqual(code, 2, text)
        self.assertIn("address: missing", text, "the one thing that nobody can know before")

    def test_pages(self):
        pages = glob.glob(os.path.join(self.tree, "usr/share/man/man*/*.gz"))
        self.assertEqual(len(pages), 12)
        environment = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="120", MAN_KEEP_FORMATTING="")
        for page in pages:
            done = subprocess.run(["man", "-l", "--warnings", page], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=environment, check=True)
            self.assertEqual(done.stderr, "", page)
            self.assertNotRegex(done.stdout, r"@[A-Z]+@", page)
            for other, section in re.findall(r"\b(sd[a-z.-]+)\(([1578])\)", done.stdout):
                self.assertTrue(any(os.path.basename(p) == "%s.%s.gz" % (other, section) for p in pages),
                                "%s names %s(%s)" % (page, other, section))

    def page(self, name):
        section = name.rsplit(".", 1)[1]
        return run("man", "-l", os.path.join(self.tree, "usr/share/man/man%s/%s.gz" % (section, name)),
                   env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="120"))

    def test_documents_name_every_setting(self):
        settings = read(SOURCE, "docs/reference/settings.md")
        for daemon in ("sdtraind", "sdcontroller"):
            keys, page = settings_of(daemon), self.page(daemon + ".json.5")
            self.assertGreater(len(keys), 15)
            for key in keys:
                self.assertTrue(re.search(r"(?m)^     %s\b" % key, page), "%s.json(5) lacks %s" % (daemon, key))
                self.assertTrue("| `%s` |" % key in settings, "docs/reference/settings.md lacks %s" % key)
        verbs = re.findall(r"^  ([a-z-]+(?: [a-z-]+)?) {2}", run(os.path.join(BIN, "sdctl"), "--help"), re.M)
        self.assertGreater(len(verbs), 20)
        page = self.page("sdctl.1")
        for verb in verbs:
            self.assertTrue(re.search(r"(?m)^%s$" % verb.upper(), page), "sdctl(1) lacks %s" % verb)

    def test_documents_name_every_key_of_a_job(self):
        page = read(SOURCE, "docs/reference/job-file.md")
        table = "".join(page.split("<!-- begin: %s -->" % part)[1].split("<!-- end -->")[0] for part in ("job", "eval-job", "loss-job", "grid-job"))
        told = {key for cell in re.findall(r"^\| (`[^|]*) \|", table, re.M) for key in re.findall(r"`\.?([a-z_.]+)`", cell)}
        told = {key.rsplit(".", 1)[-1] for key in told}
        code = read(SOURCE, "protocol/job.c")
        known = set(re.findall(r'json_get_\w+\(&?\w+,\s*"([a-z_]+)"', code))
        objects = set(re.findall(r'json_get_object\(&?\w+,\s*"([a-z_]+)"', code))
        inside = {"proportion", "checkpoint", "optimizer", "exec"}  # of a stream, of init, and a table of its own
        self.assertGreater(len(known), 30)
        self.assertEqual(known - objects - told - inside, set(), "keys that the table lacks")
        self.assertEqual(told - set(re.findall('"([a-z_]+)"', code)), set(), "keys that the table has made up")

    def test_every_message_id_is_explained(self):
        ids = re.findall(r'MESSAGE_[A-Z_]+ "([0-9a-f]{32})"', read(SOURCE, "base/message-id.h"))
        explained = re.findall(r"^-- ([0-9a-f]{32})$", read(self.tree, "usr/lib/systemd/catalog/sdtrain.catalog"), re.M)
        self.assertEqual(len(set(ids)), len(ids))
        self.assertEqual(sorted(ids), sorted(explained))

    def test_completion(self):
        run("bash", "-n", os.path.join(self.tree, "usr/share/bash-completion/completions/sdctl"))

    def test_an_installation_has_the_same_files(self):
        place = os.path.join(self.folder, "installed")
        run("cmake", "--install", BUILD, env=dict(os.environ, DESTDIR=place))
        installed = {os.path.join(folder, name)[len(place):] for folder, _, names in os.walk(place) for name in names}
        packed = {path for files in self.files.values() for path, (mode, _) in files.items() if mode[0] != "d"}
        self.assertEqual(installed, packed)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(verbosity=2)
