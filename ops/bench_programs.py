# SPDX-License-Identifier: Apache-2.0
"""Figures of programs of others (jobs of kind "exec"), on machines with addresses of their own (tests/chaos): needs root."""
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from bench_failover import lab_of_machines, recovered

STEP_S = 0.2

# Each rank writes when it began, each step and its end into a file. With "words" it reports steps and stages, and leaves when asked;
# without, it prints each step.
PROGRAM = """
import time
began = time.clock_gettime(time.CLOCK_REALTIME)
import os, socket, sys
sys.path.insert(0, %r)
import sdtrain
rank, generation, words = int(os.environ["RANK"]), int(os.environ["SDTRAIN_GENERATION"]), sys.argv[1] == "words"
life = open("life-%%d-%%d" %% (generation, rank), "w", buffering=1)

def note(what):
    life.write("%%s %%.6f\\n" %% (what, time.clock_gettime(time.CLOCK_REALTIME)))

life.write("began %%.6f\\n" %% began)
%s
together, step = Together(), int(os.environ["SDTRAIN_STEP"] or 0)
sdtrain.ready()
leaves = False
while not leaves:
    if words:
        sdtrain.stage("compute")
    time.sleep(%f)
    if words:
        sdtrain.stage("collective")
    leaves = together.step(words and sdtrain.leaving() is not None)
    step += 1
    note("step")
    if words:
        sdtrain.step(step)
    else:
        print(step, flush=True)
if rank == 0:
    uri = os.getcwd() + "/checkpoints/%%d" %% generation
    os.makedirs(uri)
    sdtrain.checkpoint(uri, step)
note("ended")
"""


class Programs:
    """Three nodes, and a job of three ranks, one on each."""

    def __init__(self, lab, cluster, words, submit, **options):
        import foreign
        self.cluster, self.name = cluster, "program"
        self.folder = lab.path("program")
        os.makedirs(self.folder)
        lab.write("program/train.py", PROGRAM % (foreign.CLIENT, foreign.TOGETHER, STEP_S))
        self.job = {"name": self.name, "kind": "exec", "world": {"min": 1, "max": 3},
                    "exec": {"command": [sys.executable, "train.py", "words" if words else "silent"], "dir": self.folder,
                             "notify": True, "leave_s": 20, **options},
                    "checkpoint": {"uri": self.folder + "/checkpoints"},
                    "recovery": {"max_failures_at_same_step": 100, "grow_interval_s": 0, "progress_s": 1}}
        if submit:
            cluster.submit(self.job)

    def life(self, generation, rank):
        """[(what, when)] of a rank's program."""
        try:
            with open(os.path.join(self.folder, "life-%d-%d" % (generation, rank))) as file:
                return [(line.split()[0], float(line.split()[1])) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def runs(self, size=3, steps=12):
        """(the records, the generation), once so many ranks run and have done some steps."""
        from machines import until

        def look():
            r = self.cluster.records()
            world, phase = r.get("worlds/" + self.name), r.get("phases/" + self.name, {})
            if not world or world["size"] != size or phase.get("phase") != "running" or phase["generation"] != world["generation"]:
                return None
            if any(len(self.life(world["generation"], rank)) < steps for rank in range(size)):
                return None
            if any(v["state"] == "open" for k, v in r.items() if k.startswith("incidents/")):
                return None
            return r
        records = until(look, "steps of the program", 120)
        return records, records["worlds/" + self.name]["generation"]

    def first(self, what, generation, size=3, choose=max):
        """When the last (choose: max) or first (min) of the ranks noted that."""
        from machines import until

        def look():
            lives = [[at for word, at in self.life(generation, rank) if word == what] for rank in range(size)]
            return choose(times[0] for times in lives) if all(lives) else None
        return until(look, "%s in generation %d" % (what, generation), 120)

    def pid(self, lab, rank):
        import foreign
        return foreign.program_of(lab, self.name, rank)

    def by_hand(self):
        """Seconds from the start of the same three commands to their first step, when nothing but a shell starts them."""
        folder = tempfile.mkdtemp(dir=self.folder)
        at = time.time()
        ranks = [subprocess.Popen([sys.executable, "../train.py", "words"], cwd=folder, start_new_session=True,
                                  env=dict(os.environ, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517",
                                           SDTRAIN_GENERATION="0", SDTRAIN_STEP="")) for rank in range(3)]
        try:
            from machines import until
            path = folder + "/life-0-0"
            until(lambda: os.path.exists(path) and "step" in open(path).read(), "a step by hand", 60)
            with open(path) as file:
                return next(float(line.split()[1]) for line in file if line.startswith("step")) - at
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


@contextlib.contextmanager
def machines(words=True, options=None, submit=True, **settings):
    with lab_of_machines() as (lab, chaos):
        cluster = chaos.Machines(lab, pace="TESTLAB=" + lab.folder, node={"allow_exec": True, **settings})
        try:
            yield lab, cluster, Programs(lab, cluster, words, submit, **(options or {}))
        finally:
            cluster.recorder.stop()


def node_of(records, rank):
    return records["worlds/program"]["runs"][rank]["node"]


def program_restart(o, say, report, load):
    """SIGKILL of a rank's program until the programs of all three ranks are executed again"""
    before, values = load(), []
    with machines() as (lab, _, program):
        for k in range(5 if o.quick else 21):
            _, generation = program.runs()
            pid, at = program.pid(lab, k % 3), time.time()
            os.kill(pid, signal.SIGKILL)
            values.append(program.first("began", generation + 1) - at)
    report("program_restart", "s", 0.5, values, before)


def program_silent_death(o, say, report, load):
    """power loss of a node to the first step that the programs of the next world do, beyond what they take by hand; lease_sec 2"""
    before, values, hand = load(), [], []
    with machines() as (lab, cluster, program):
        hand = sorted(program.by_hand() for _ in range(5))[2]
        for k in range(3 if o.quick else 11):
            records, generation = program.runs()
            victim, at = node_of(records, k % 3), time.time()
            cluster.power_off(victim)
            values.append(program.first("step", generation + 1, size=2) - at - hand)
            say("%s lost power: %.2f s" % (victim, values[-1]))
            cluster.power_on(victim)
    report("program_silent_death", "s", 3.8, values, before, by_hand=round(hand, 3))


def hangs(name, reach, o, say, report, load, **how):
    before, values, named = load(), [], 0
    with machines(hang_floor_sec=1, **how) as (lab, cluster, program):
        for k in range(3 if o.quick else 20):
            records, generation = program.runs()
            rank, at = k % 3, time.time()
            os.kill(program.pid(lab, rank), signal.SIGSTOP)
            incident = recovered_program(cluster, generation)
            world = cluster.records("worlds/")["worlds/program"]
            assert world["generation"] == generation + 1, world
            values.append(world["decided_usec"] / 1e6 - at)
            named += (incident["cause"], incident.get("node"), incident.get("rank")) == ("hang", node_of(records, rank), rank)
            say("rank %d stopped: %.2f s, %s of rank %s: %s" % (rank, values[-1], incident["cause"], incident.get("rank"), incident["evidence"]))
    report(name, "s", reach, values, before, right_rank_named="%d of %d" % (named, len(values)))


def recovered_program(cluster, generation):
    return recovered(cluster, {"name": "program"}, generation)


def program_hang(o, say, report, load):
    """SIGSTOP of a program that names its stages, at steps of 0.2 s and hang_floor_sec 1, until the next world is decided"""
    hangs("program_hang", 3.0, o, say, report, load)


def program_silent_hang(o, say, report, load):
    """SIGSTOP of a program that prints its steps and reports nothing, silence_s 5, until the next world is decided"""
    hangs("program_silent_hang", 6.5, o, say, report, load, words=False, options={"silence_s": 5, "notify": False})


def program_blame(o, say, report, load):
    """SIGKILLs of a program while the others wait for it: incidents that name its node, per hundred"""
    kills, before, named, wrong = 10 if o.quick else 100, load(), 0, 0
    with machines() as (lab, cluster, program):
        for k in range(kills):
            records, generation = program.runs(steps=3)
            os.kill(program.pid(lab, k % 3), signal.SIGKILL)
            incident = recovered_program(cluster, generation)
            right = (incident["cause"], incident.get("node")) == ("trainer-died", node_of(records, k % 3))
            named, wrong = named + right, wrong + (not right and bool(incident.get("node")))
            if not right:
                say("rank %d killed: %s of %s: %s" % (k % 3, incident["cause"], incident.get("node"), incident["evidence"]))
    report("program_blame", "of 100", 98, [100 * named / kills], before, least=True, kills=kills, another_node_named=wrong)


def program_drain(o, say, report, load):
    """drain of a node: the end of the last program of the old world until those of the next world are executed"""
    before, values = load(), []
    with machines() as (lab, cluster, program):
        for k in range(3 if o.quick else 11):
            records, generation = program.runs()
            victim = node_of(records, k % 3)
            cluster.ctl("node", "drain", victim)
            values.append(program.first("began", generation + 1, size=2) - program.first("ended", generation))
            cluster.ctl("node", "uncordon", victim)
    report("program_drain", "s", 0.8, values, before)


def program_fence(o, say, report, load):
    """nodes that are cut off from etcd, fence_s 0: worlds whose program was dead before the next one began"""
    before, dead, tries = load(), 0, 3 if o.quick else 20
    with machines(options={"fence_s": 0}) as (lab, cluster, program):
        cluster.ctl("job", "resize", "program", "--world", "1")
        for k in range(tries):
            records, generation = program.runs(size=1)
            victim = node_of(records, 0)
            cluster.network.cut_both([cluster.address[victim]], [cluster.address[name] for name in cluster.names["etcd"]])
            began = program.first("began", generation + 1, size=1)
            last = program.life(generation, 0)[-1][1]
            dead += last < began
            say("%s is cut off: the old program's last step %.2f s before the next program" % (victim, began - last))
            cluster.network.mend()
    report("program_fence", "of %d" % tries, tries, [dead], before, least=True)


def memory_of(pid):
    """Resident bytes of a process. Libraries count in each, since another node's processes share them on this machine alone."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("Rss:"))


def program_memory(o, say, report, load):
    """resident memory of sdtraind, its keeper and sdtrain-exec beside the program, on a node of one rank"""
    before, values = load(), []
    with machines() as (lab, cluster, program):
        program.runs(steps=40)
        from lab import processes_of
        for node in cluster.names["node"]:
            inside = set(cluster.network.processes(node))
            values.append(sum(memory_of(pid) for pid, name in processes_of(lab.folder)
                              if pid in inside and name.startswith("sdtrain")) / 1024 ** 2)
    report("program_memory", "MiB", 26, values, before)


# ---- beside torchrun ----

# DDP over gloo. A rank notes its life in a file of its own; rank 0 saves each 20th step where every launcher finds it.
DDP = """
import time
began = time.clock_gettime(time.CLOCK_REALTIME)
import datetime, os, sys
sys.path.insert(0, %r)
import sdtrain
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
life = open("life-%%d-%%d" %% (rank, os.getpid()), "w", buffering=1)
life.write("began %%.6f\\n" %% began)
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ.get("GLOO_SECONDS", "1800"))))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 256)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
step = 0
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    step = state["step"]
sdtrain.ready()
while True:
    optimizer.zero_grad()
    model(torch.randn(64, 256)).square().mean().backward()
    optimizer.step()
    step += 1
    life.write("step %%.6f\\n" %% time.clock_gettime(time.CLOCK_REALTIME))
    sdtrain.step(step)
    if step %% 20 == 0 and rank == 0:
        torch.save({"model": model.state_dict(), "step": step}, "state.pt.new")
        os.replace("state.pt.new", "state.pt")
"""


DDP_ENV = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
AGAIN_MAX_S = 60  # a launcher that has not started all ranks again by then does not count as slow, but as one that does not


def lives_since(folder, at):
    """{rank: (pid, times of its steps)} of the newest processes that began after that moment: a launcher may need two tries."""
    found, begun = {}, {}
    for name in os.listdir(folder):
        if name.startswith("life-"):
            with open(os.path.join(folder, name)) as file:
                lines = [line.split() for line in file if line.endswith("\n")]
            _, rank, pid = name.split("-")
            if lines and float(lines[0][1]) > max(at, begun.get(rank, 0)):
                begun[rank] = float(lines[0][1])
                found[int(rank)] = (int(pid), [float(when) for what, when in lines if what == "step"])
    return found


def steps_since(folder, at, steps=1):
    """The same of three ranks, once each has done so many steps."""
    from machines import until

    def look():
        found = lives_since(folder, at)
        return found if len(found) == 3 and all(len(times) >= steps for _, times in found.values()) else None
    return until(look, "%d steps" % steps, AGAIN_MAX_S)


@contextlib.contextmanager
def processes(folder, commands):
    """Starts the commands, each a list or (list, environment); ends them and what they have started."""
    with open(folder + "/log", "wb") as log:
        started = [subprocess.Popen(command, cwd=folder, env=dict(os.environ, **more), start_new_session=True, stdout=log, stderr=log)
                   for command, more in commands]
    try:
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid, _ in lives_since(folder, 0).values():  # torchrun's workers have sessions of their own
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%d/cwd" % pid) == folder:
                    os.kill(pid, signal.SIGKILL)


def three_by_hand(cluster, python):
    return [(cluster.network.inside(node) + [python, "ddp.py"],
             {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": cluster.address["node1"], "MASTER_PORT": "29600", **DDP_ENV})
            for rank, node in enumerate(cluster.names["node"])]


# At its defaults the workers of PyTorch 2.15 share the store of the agents, in which a new attempt finds the gloo addresses of the one before.
TUNED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SECONDS": "10"}


def torchrun(cluster, python, conf=(), **environment):
    """conf: more of --rdzv-conf. An agent does not find out by itself that the address of its namespace is its own."""
    return [(cluster.network.inside(node) + [python, "-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node=1", "--rdzv-backend=c10d",
                                             "--max-restarts=100", "--rdzv-endpoint=%s:29700" % cluster.address["node1"], "--rdzv-id=bench",
                                             "--local-addr=" + cluster.address[node],
                                             "--rdzv-conf=" + ",".join(["is_host=%d" % (node == "node1"), *conf]), "ddp.py"],
             {**DDP_ENV, **environment}) for node in cluster.names["node"]]


def kill_and_wait(folder, at, k):
    """Kills a rank that began after `at`. Returns the seconds until three new processes have done a step, or the most that it waits."""
    from lab import TimedOut
    pid = steps_since(folder, at, 30)[k % 3][0]
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    try:
        return max(times[0] for _, times in steps_since(folder, killed).values()) - killed
    except TimedOut:
        return AGAIN_MAX_S


def ddp(o, do):
    """Calls do(cluster, python, start) where start(name, commands) is a context: three ranks run in a new folder, by launchers or a job."""
    python = o.venv_python()
    with machines(submit=False) as (lab, cluster, program):
        import foreign

        @contextlib.contextmanager
        def start(name, commands=None):
            folder = lab.path(name)
            os.makedirs(folder)
            lab.write(name + "/ddp.py", DDP % foreign.CLIENT)
            if commands:
                with processes(folder, commands):
                    yield folder
                return
            job = dict(program.job, name=name, world={"min": 3, "max": 3})
            job["exec"] = dict(job["exec"], command=[python, "ddp.py"], dir=folder, env=DDP_ENV)
            job["checkpoint"] = {"uri": folder}
            cluster.submit(job)
            try:
                yield folder
            finally:
                cluster.ctl("job", "stop", name, "--wait", "--timeout", "60")
        do(cluster, python, start)


def program_next_step(o, say, report, load):
    """SIGKILL of a rank of a DDP program to the next step, beyond what the three commands take by hand"""
    runs, before, hand, values, peers = 2 if o.quick else 7, load(), [], [], {"torchrun": [], "torchrun_tuned": []}

    def do(cluster, python, start):
        for k in range(3):
            at = time.time()
            with start("hand%d" % k, three_by_hand(cluster, python)) as folder:
                hand.append(max(times[0] for _, times in steps_since(folder, at).values()) - at)
        for name, commands, into in (("ours", None, values), ("default", torchrun(cluster, python), peers["torchrun"]),
                                     ("tuned", torchrun(cluster, python, ["keep_alive_interval=1", "last_call_timeout=1"],
                                                        **TUNED), peers["torchrun_tuned"])):
            for k in range(min(runs, 3) if into is peers["torchrun"] else runs):
                at = time.time()
                with start("%s%d" % (name, k), commands) as folder:
                    into.append(kill_and_wait(folder, at, k))
                say("%s: rank %d killed: %.2f s" % (name, k % 3, into[-1]))
    ddp(o, do)
    usual = statistics.median(hand)
    report("program_next_step", "s", 0.8, [value - usual for value in values], before, by_hand=round(usual, 2),
           **{name: round(statistics.median(seen) - usual, 2) for name, seen in peers.items()},
           not_within_60_s={name: sum(s == AGAIN_MAX_S for s in seen) for name, seen in peers.items()})


def program_speed(o, say, report, load):
    """steps/s of a DDP program, of what it does under torchrun, in turns"""
    before, values, steps = load(), [], 100 if o.quick else 400

    def pace(folder, at):
        times = steps_since(folder, at, steps + 10)[0][1]
        return steps / (times[steps + 9] - times[9])

    def do(cluster, python, start):
        for k in range(3 if o.quick else 5):
            paces = []
            for name, commands in (("torchrun", torchrun(cluster, python)), ("ours", None)):
                at = time.time()
                with start("%s%d" % (name, k), commands) as folder:
                    paces.append(pace(folder, at))
            values.append(paces[1] / paces[0])
            say("%.1f steps/s under torchrun, %.1f here" % tuple(paces))
    ddp(o, do)
    report("program_speed", "of torchrun's", 0.98, values, before, least=True)


FIGURES = [program_restart, program_silent_death, program_hang, program_silent_hang, program_blame, program_drain, program_fence,
           program_memory, program_next_step, program_speed]
