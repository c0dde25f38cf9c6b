#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of others on one machine, by `sdtrain-exec try`: whole worlds of Python's own library and of shell scripts, which
are killed, hang, leave and register checkpoints."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from foreign import CLIENT, TRAINER
from lab import BIN, SOURCE, until

EXEC = os.path.join(BIN, "sdtrain-exec")


def alive(mark):
    """Processes whose environment has this text."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if mark.encode() in file.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass  # it has just ended, or is another user's
    return found


class TryCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sdtrain-try-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.mark = "TRYLAB=" + self.folder
        self.faults()
        self.write("train.py", TRAINER)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def faults(self, *lines):
        self.write("faults", "".join(line + "\n" for line in lines))

    def job(self, command, world=None, recovery=None, **more):
        job = {"name": "tried", "kind": "exec", "world": world or {"min": 2, "max": 2, "per_node": 2},
               "checkpoint": {"uri": self.path("checkpoints")}, "exec": {"command": command, "dir": self.folder, **more},
               "recovery": {"max_failures_at_same_step": 3, **(recovery or {})}}
        return self.write("job.json", json.dumps(job))

    def start(self, path, *options):
        env = dict(os.environ, TRYLAB=self.folder)
        process = subprocess.Popen([EXEC, "try", path, "--env", "TRYLAB", *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", env=env)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def end(self, process, code, timeout=120):
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail("it does not end:\n" + process.communicate()[0])
        self.assertEqual(process.returncode, code, text)
        until(lambda: not alive(self.mark), "nothing of it lives", timeout=20)
        return text

    def run_job(self, path, code, *options):
        return self.end(self.start(path, *options), code)

    def state(self, rank):
        with open(self.path("end-%d" % rank)) as file:
            return json.load(file)


class Worlds(TryCase):
    def trainer(self, last=30, every=10, **more):
        return self.job(["python3", "train.py", str(last), str(every)], steps=last, **more)

    def check_all_steps(self, last=30):
        for rank in range(2):
            self.assertEqual(self.state(rank), {"step": last, "sum": last * (last + 1) // 2})

    def test_undisturbed(self):
        text = self.run_job(self.trainer(), 0)
        self.check_all_steps()
        self.assertIn("generation 1: 2 ranks go", text)
        self.assertIn("the job has finished", text)
        self.assertEqual(text.count("checkpoint of step "), 3)

    def test_killed_again_and_again(self):
        self.faults("1 1 15 9", "2 0 17 11", "3 1 -1 exit1", "4 0 25 6")
        text = self.run_job(self.trainer(), 0)
        self.check_all_steps()
        self.assertIn("generation 1: rank 1 ended with -9 at step 15: killed by SIGKILL", text)
        self.assertIn("generation 2: rank 0 ended with -11 at step 17: killed by SIGSEGV", text)
        self.assertIn("generation 3: rank 1 ended with 75", text)
        self.assertIn("generation 4: rank 0 ended with -6 at step 25: killed by SIGABRT", text)
        self.assertIn("generation 5: 2 ranks go", text)

    def test_without_progress_it_ends(self):
        self.faults(*("%d 1 5 exit3" % generation for generation in range(1, 9)))
        text = self.run_job(self.trainer(exit_codes={"3": "store-unreachable"}), 83)
        # the first generation made progress: it reached a step that none had reached
        self.assertEqual(re.findall(r"generation (\d+): rank 1 ended with 83 at step 5", text), ["1", "2", "3", "4"])
        self.assertNotIn("generation 5", text)

    def test_a_job_that_is_wrong_ends_at_once(self):
        self.faults("1 0 3 exit78")
        text = self.run_job(self.trainer(), 78)
        self.assertIn("generation 1: rank 0 ended with 78 at step 3: exited 78 without a word", text)
        self.assertNotIn("generation 2", text)

    def test_the_rank_that_explains_it_is_named(self):
        self.faults("1 0 12 9", "2 1 15 exit1")
        text = self.run_job(self.trainer(), 0)
        self.check_all_steps()
        self.assertIn("generation 1: rank 0 ended with -9", text)
        self.assertIn("generation 2: rank 1 ended with 75", text)
        self.assertEqual(text.count("error sdtrain-exec: RuntimeError: [pair.cc:545] Read error: Connection reset by peer"), 2)

    def test_the_first_failure_is_named(self):
        """Rank 0 fails by itself a moment after rank 1, of which its output tells nothing."""
        self.write("two.sh", """
            if [ "$SDTRAIN_GENERATION" = 1 ]; then
                [ "$RANK" = 1 ] || sleep 0.1
                exit 1
            fi
        """)
        text = self.run_job(self.job(["sh", "two.sh"]), 0)
        self.assertIn("generation 1: rank 1 ended with 75", text)

    def test_a_checkpoint_that_cannot_be_read_is_left_aside(self):
        self.faults("1 1 25 9", "2 0 -1 exit82")
        text = self.run_job(self.trainer(), 0)
        self.check_all_steps()
        self.assertIn("g1-step-20 is left aside", text)

    def test_a_checkpoint_that_nobody_waits_for(self):
        self.write("register.py", """
import os, sys, time
sys.path.insert(0, %r)
import sdtrain
uri = os.getcwd() + "/checkpoints/"
if sdtrain.resume():
    assert sdtrain.resume() == (uri + "7", 7), sdtrain.resume()
    sys.exit(0)
assert sdtrain.committed() is None
assert sdtrain.register("/elsewhere", 3)
assert sdtrain.register(uri + "5", 5)
while sdtrain.committed() != 5:
    time.sleep(0.01)
assert sdtrain.register(uri + "7", 7)
while sdtrain.committed() != 7:
    time.sleep(0.01)
sys.exit(1)
""" % CLIENT)
        text = self.run_job(self.job(["python3", "register.py"], world={"min": 1, "max": 1}), 0)
        self.assertIn("CHECKPOINT=/elsewhere is refused", text)

    def test_silence(self):
        self.faults("1 1 12 hang")
        text = self.run_job(self.trainer(silence_s=2), 0)
        self.check_all_steps()
        # both stand still then, and nothing tells which of them hangs
        self.assertRegex(text, r"rank [01] ended with -9 at step 12: no output and no report for 2 s \(exec.silence_s\); "
                               r"it stood in \S+ \(train.py:\d+\)")
        self.assertRegex(text, r"process \d+ \(python3\S*\) sleeps")
        self.assertIn("(most recent call first):", text)


class Leaving(TryCase):
    def wait(self, *options, **more):
        """A world that stands at step 12."""
        self.write("wait-12", "")
        path = self.job(["python3", "train.py", "30", "10"], **more)
        process = self.start(path, *options)
        until(lambda: os.path.exists(self.path("checkpoints/g1-step-10/state.json")), "a checkpoint")
        return process

    def test_once_saves_and_leaves(self):
        process = self.wait()
        until(lambda: all(os.path.exists(self.path("stands-%d" % rank)) for rank in range(2)), "both stand at step 12")
        process.send_signal(signal.SIGINT)
        text = self.end(process, 0)
        self.assertIn("the job has left", text)
        self.assertEqual([self.state(rank)["step"] for rank in range(2)], [12, 12])
        self.assertIn("checkpoint of step 12", text)

    def test_twice_kills(self):
        self.faults("1 1 11 hang")
        process = self.wait(leave_s=600)
        until(lambda: os.path.exists(self.path("hangs")), "its hang")
        lines = []
        process.send_signal(signal.SIGTERM)
        while sum("the program is asked to leave" in line for line in lines) < 2:
            lines.append(process.stdout.readline())
            self.assertTrue(lines[-1], lines)
        process.send_signal(signal.SIGTERM)
        self.end(process, 130)

    def test_who_does_not_leave_is_killed(self):
        self.faults("1 1 11 hang")
        process = self.wait(leave_s=1)
        until(lambda: os.path.exists(self.path("hangs")), "its hang")
        process.send_signal(signal.SIGTERM)
        self.assertIn("the program has not left in time: it is killed", self.end(process, 0))

    def test_what_survives_a_kill_ends_it(self):
        """No world starts beside a process that cannot be killed."""
        env = dict(os.environ, SDTRAIN_FAULT="kill-confirm=eio@*")
        done = subprocess.run([EXEC, "try", self.job(["true"])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=120)
        self.assertEqual(done.returncode, 80, done.stdout)
        self.assertRegex(done.stdout, "rank [01]: a process of its program survives SIGKILL")

    def test_nothing_outlives_a_killed_try(self):
        process = self.wait()
        with open("/proc/%d/environ" % alive("SDTRAIN_JOB=tried")[0]) as file:
            folder = os.path.dirname(re.search(r"SDTRAIN_SOCKET=(/tmp/sdtrain-exec-try-\w+/[^\0]+)", file.read()).group(1))
        folder = "/".join(folder.split("/")[:3])
        process.kill()
        process.communicate()
        until(lambda: not alive(self.mark), "nothing of it lives", timeout=20)
        self.assertTrue(os.path.isdir(folder))
        self.run_job(self.job(["true"]), 0)  # the next one removes what nobody holds
        self.assertFalse(os.path.exists(folder))


class Programs(TryCase):
    def test_what_a_program_sees(self):
        path = self.job(["sh", "-c", "env > env-$$RANK; echo $${1}", "sh", "a ${RANK} $$ of ${WORLD_SIZE}"],
                        world={"min": 2, "max": 8, "per_node": 2}, env={"MINE": "$$ ${WORLD_SIZE}"})
        text = self.run_job(path, 0, "--ranks", "4")
        seen = []
        for rank in range(4):
            with open(self.path("env-%d" % rank)) as file:
                seen.append(dict(line.rstrip("\n").split("=", 1) for line in file))
        for rank, env in enumerate(seen):
            self.assertIn("a %d $ of 4" % rank, text)
            for name, value in {"RANK": rank, "LOCAL_RANK": rank % 2, "GROUP_RANK": rank // 2, "NODE_RANK": rank // 2,
                                "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "GROUP_WORLD_SIZE": 2, "MINE": "$ 4",
                                "MASTER_ADDR": "127.0.0.1", "SDTRAIN_CHECKPOINT": "", "TRYLAB": self.folder,
                                "PWD": self.folder}.items():
                self.assertEqual(env[name], str(value), name)
            self.assertEqual(env["MASTER_PORT"], seen[0]["MASTER_PORT"])
            self.assertNotIn("SDTRAIN_CHANNEL", env)
        self.assertEqual(len({env["SDTRAIN_SOCKET"] for env in seen}), 4)

    def test_what_a_program_leaves_behind_is_ended(self):
        """Also what has left its session, and what has closed its output."""
        self.write("leave.sh", """
            sleep 600 &
            setsid sleep 600 > /dev/null 2>&1 &
            (setsid setsid sleep 600 &) > /dev/null 2>&1
            exit $1
        """)
        for code in (0, 78):
            self.run_job(self.job(["sh", "leave.sh", str(code)]), code)

    def test_shell_scripts_report(self):
        self.write("steps.sh", """
            set -e
            if [ -z "$SDTRAIN_CHECKPOINT" ]; then
                for step in 1 2 3; do "$SAY" say STEP=$step LOSS=0.5; done
                if [ "$RANK" = 0 ]; then
                    "$SAY" say STEP=3 CHECKPOINT=$PWD/checkpoints/three
                    while [ ! -e go-on ]; do sleep 0.02; done
                fi
                exit 4
            fi
            echo "rank $RANK goes on from $SDTRAIN_CHECKPOINT, $SDTRAIN_STEP"
            if "$SAY" say STEP=minus 2> said-$RANK; then exit 5; fi
        """)
        self.write("job.json", "")
        process = self.start(self.job(["sh", "steps.sh"], env={"SAY": EXEC}, world={"min": 1, "max": 1}))
        lines = []
        while not any("checkpoint of step 3" in line for line in lines):
            line = process.stdout.readline()
            self.assertTrue(line, lines)
            lines.append(line)
        self.write("go-on", "")
        text = self.end(process, 0)
        self.assertIn("rank 0 goes on from %s/checkpoints/three, 3" % self.folder, text)
        with open(self.path("said-0")) as file:
            self.assertEqual(file.read(), "sdtrain-exec say: STEP=minus: expected a number, 0 to 1099511627776\n")

    def test_steps_in_the_output(self):
        self.write("print.sh", """
            if [ "$SDTRAIN_GENERATION" -lt 6 ]; then
                echo "epoch 0, step $SDTRAIN_GENERATION: loss 0.25"
                exit 1
            fi
        """)
        # each generation gets a step further, so that none is a failure without progress
        text = self.run_job(self.job(["sh", "print.sh"], world={"min": 1, "max": 1},
                                     progress={"step": "step ([0-9]+):", "loss": "loss ([0-9.]+)"}), 0)
        self.assertIn("generation 5: rank 0 ended with 75 at step 5", text)

    def test_secrets(self):
        secrets = self.write("secrets", "TOKEN=hunter2secret\n", 0o600)
        self.write("tell.sh", """
            echo the token is $TOKEN
            $SAY say STATUS=$TOKEN
            $SAY say CHECKPOINT=/elsewhere/$TOKEN
            python3 -c 'import os, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);\
                s.connect(os.environ["SDTRAIN_SOCKET"]); s.send(os.environ["TOKEN"].encode())'
            exit 78
        """)
        path = self.job(["sh", "tell.sh"], secrets=["TOKEN"], world={"min": 1, "max": 1}, env={"SAY": EXEC})
        text = self.run_job(path, 78, "--secrets", secrets)
        for words in ("the token is ***", "the program reports: ***", "CHECKPOINT=/elsewhere/*** is refused", '"***" is not a line KEY=VALUE'):
            self.assertIn(words, text)
        self.assertNotIn("hunter2", text)
        self.assertIn("exec.secrets: this node keeps no secrets", self.run_job(path, 78))
        os.chmod(secrets, 0o644)
        self.assertIn("others may read or write it", self.run_job(path, 78, "--secrets", secrets))

    def test_what_it_leaves_in_shared_memory_goes_before_the_next_start(self):
        name = "/dev/shm/sdtrain-test-%d" % os.getpid()
        with open(name + "-other", "w"):  # of somebody else
            self.addCleanup(os.unlink, name + "-other")
        self.write("shm.py", """
import os, sys
os.close(os.open(%r, os.O_CREAT | os.O_EXCL))
if os.environ["SDTRAIN_GENERATION"] < "3":
    os.kill(os.getpid(), 9)
os.unlink(%r)
""" % (name, name))
        text = self.run_job(self.job(["python3", "shm.py"], world={"min": 1, "max": 1}), 0)
        self.assertEqual(text.count("removed 1 file(s) that the last program left in /dev/shm"), 2)
        self.assertTrue(os.path.exists(name + "-other"))

    def test_temporary_files(self):
        """The ranks of a node share a folder that is empty when a world begins, and gone when it has ended."""
        self.write("tmp.sh", """
ls "$TMPDIR" >before-$RANK-$SDTRAIN_GENERATION
: >ready-$RANK-$SDTRAIN_GENERATION
for rank in 0 1; do while [ ! -e ready-$rank-$SDTRAIN_GENERATION ]; do sleep 0.01; done; done
: >"$TMPDIR/of-$RANK"
while [ ! -e "$TMPDIR/of-$((1 - RANK))" ]; do sleep 0.01; done
echo "$TMPDIR" >tmp-$RANK-$SDTRAIN_GENERATION
[ $SDTRAIN_GENERATION = 3 ] || kill -9 $$
""")
        self.run_job(self.job(["sh", "tmp.sh"]), 0)
        folders = set()
        for rank in "0", "1":
            for generation in "1", "2", "3":
                with open(self.path("before-%s-%s" % (rank, generation))) as file:
                    self.assertEqual(file.read(), "")
            with open(self.path("tmp-%s-3" % rank)) as file:
                folders.add(file.read().strip())
        (folder,) = folders
        self.assertFalse(os.path.exists(folder), folder)

    def test_setup_runs_once(self):
        path = self.job(["sh", "-c", "test -e prepared && test $$SDTRAIN_GENERATION = 3"],
                        setup=["sh", "-c", "echo x >> prepared; sleep 0.2"])
        self.run_job(path, 0)
        with open(self.path("prepared")) as file:
            self.assertEqual(file.read(), "x\n")
        self.assertIn("exec.setup: exited 4", self.run_job(self.job(["true"], setup=["sh", "-c", "exit 4"]), 75))

    def test_a_setup_that_hangs_ends(self):
        began = time.monotonic()
        text = self.run_job(self.job(["true"], setup=["sleep", "600"], recovery={"max_failures_at_same_step": 1}), 75, "--startup", "1")
        self.assertRegex(text, r"rank [01] ended with 75 at step 0: not ready within 1 s \(--startup\)")
        self.assertLess(time.monotonic() - began, 60)


class Refusals(TryCase):
    def refused(self, path, words, *options, code=78):
        text = self.run_job(path, code, *options)
        self.assertIn(words, text)
        self.assertNotIn("ranks go", text)

    def test_job_files(self):
        self.refused(self.path("nothing.json"), "nothing.json")
        self.refused(self.write("job.json", "{"), "job.json")
        self.refused(self.job([]), "exec.command: is empty")
        if not os.path.exists("/proc/driver/nvidia/gpus"):
            self.refused(self.job(["a"], device="cuda"), "exec.device: cuda: /proc/driver/nvidia/gpus: ")
        self.refused(self.job(["a"], world={"min": 2, "max": 8, "per_node": 2}), "--ranks 3: ", "--ranks", "3")
        self.refused(self.job(["a"], world={"min": 2, "max": 8, "per_node": 2}), "--ranks 10: ", "--ranks", "10")
        with open(os.path.join(SOURCE, "tests/golden/versions/0.2.0/job.json")) as file:
            text = file.read().replace("FOLDER", self.folder)
        self.refused(self.write("job.json", text), "kind: \"train\" is run by sdtrainer run --job FILE")

    def test_programs(self):
        self.refused(self.job(["nonexistent-program"]), "exec.command: nonexistent-program is in no folder of PATH")
        self.refused(self.job(["./faults"]), "exec.command: cannot execute %s/./faults" % self.folder)
        self.write("script", "#!/nonexistent/python\n", 0o755)
        self.refused(self.job(["./script"]), "its interpreter /nonexistent/python")

    def test_trainers_refuse_the_kind(self):
        done = subprocess.run([os.path.join(BIN, "sdtrainer"), "run", "--job", self.job(["true"])],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 78, done.stdout)
        self.assertIn("job.json: kind: \"exec\": only jobs that sdtrain trains itself", done.stdout)

    def test_a_cluster_checks_the_job_file(self):
        def start(*options, **changes):
            job = json.loads(open(self.job(["true"])).read())
            job.update(changes)
            done = subprocess.run([os.path.join(BIN, "sdctl"), "job", "start", "-f", self.write("job.json", json.dumps(job)),
                                   "--dry-run", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={name: value for name, value in os.environ.items() if name != "SDTRAIN_ETCD"})
            return done.returncode, done.stdout
        code, text = start()
        self.assertEqual(code, 0, text)
        self.assertIn("job tried would be submitted: true on 2 to 2 ranks, 2 per node", text)
        code, text = start(checkpoint={"uri": "ckpt"})
        self.assertEqual(code, 1, text)
        self.assertIn('checkpoint.uri: "ckpt" is relative', text)
        code, text = start("--resume", "/ckpt/step-4/manifest.json")
        self.assertEqual(code, 1, text)
        self.assertIn("--resume: a program finds its checkpoint by itself", text)

    def test_options(self):
        for words in (("try",), ("try", "a", "b"), ("try", "a", "--ranks", "0"), ("try", "a", "--ranks", "x"), ("try", "a", "--startup", "0"), ("run",), ("dance",), ()):
            done = subprocess.run([EXEC, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={name: value for name, value in os.environ.items() if name != "SDTRAIN_CHANNEL"})
            self.assertEqual(done.returncode, 2, done.stdout)


class Client(unittest.TestCase):
    """exec/client/sdtrain.py without sdtrain, and where nobody listens."""

    def python(self, script, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith("SDTRAIN_")}
        done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, %r); import sdtrain\n%s" % (CLIENT, script)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**env, **environment}, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    SILENT = """
assert not sdtrain.active() and sdtrain.resume() is None
sdtrain.ready(); sdtrain.step(1, loss=0.5); sdtrain.stage("data"); sdtrain.status("x"); sdtrain.watchdog()
sdtrain.extend(3); sdtrain.finished(); sdtrain.stacks()
assert sdtrain.leaving() is None and not sdtrain.save_requested()
assert sdtrain.checkpoint("/a", 1) is True and sdtrain.register("/a", 2) is True and sdtrain.committed() is None
"""

    def test_without_sdtrain(self):
        self.python(self.SILENT)

    def test_where_nobody_listens(self):
        self.python(self.SILENT, SDTRAIN_SOCKET="/nonexistent/socket")

    def test_no_report_blocks_a_step(self):
        """A runner that stands still takes nothing: steps are dropped, and a checkpoint is refused after its time."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(path)
                listener.listen(4)
                self.python("""
import os, time
began = time.monotonic()
for i in range(20000):
    sdtrain.step(i)
    sdtrain.leaving()
assert sdtrain.checkpoint("/a", 1, timeout=0.2) is False
if os.fork() == 0:
    assert sdtrain.active()
    os._exit(0)
assert os.wait()[1] == 0
assert time.monotonic() - began < 50
""", SDTRAIN_SOCKET=path)

    def test_nobody_waits_to_be_accepted(self):
        """The queue of a runner that stands still is full: no call waits for a place in it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(path)
                listener.listen(0)
                others = []
                while True:
                    other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    other.setblocking(False)
                    others.append(other)
                    try:
                        other.connect(path)
                    except BlockingIOError:
                        break
                self.python("""
import time
began = time.monotonic()
sdtrain.step(1)
assert sdtrain.checkpoint("/a", 1, timeout=0.2) is False and sdtrain.leaving() is None
assert time.monotonic() - began < 50
""", SDTRAIN_SOCKET=path)
                for other in others:
                    other.close()

    def test_wrong_reports_are_errors_of_the_caller(self):
        self.python("""
for call in (lambda: sdtrain.stage("sleep"), lambda: sdtrain.step(1, loss="9" * 5000)):
    try:
        call()
    except ValueError:
        continue
    raise SystemExit("no error")
""")


if __name__ == "__main__":
    unittest.main()
