# SPDX-License-Identifier: Apache-2.0
"""A program as people write them, of Python's own library, for tests of jobs of kind "exec"."""
import os

from lab import SOURCE, processes_of, until

CLIENT = os.path.join(SOURCE, "exec/client")



def program_of(lab, job, rank, starts="python"):
    """The pid of the job's program of that rank."""
    def look():
        for pid, program in processes_of(lab.folder):
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"RANK=%d" % rank in words and b"SDTRAIN_JOB=" + job.encode() in words and program.startswith(starts):
                return pid
        return None
    return until(look, "the program of rank %d" % rank)


# Ranks that do each step together. It imports os, socket and time.
TOGETHER = """
class Together:
    # All ranks do a step at the same time, as a collective makes them, and learn whether one of them raised its flag. A rank whose
    # peer is gone fails as gloo does.
    def __init__(self):
        self.peers, self.rank, n = [], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0 and n > 1:
            with socket.create_server(address) as server:  # with SO_REUSEADDR
                self.peers = [server.accept()[0] for _ in range(n - 1)]
        while self.rank > 0 and not self.peers:
            try:
                self.peers = [socket.create_connection(address)]
            except ConnectionRefusedError:
                time.sleep(0.01)

    def send(self, flag):
        for peer in self.peers:
            if peer.send(b"1" if flag else b"0") != 1:
                raise OSError

    def receive(self):
        flags = [peer.recv(1) for peer in self.peers]
        if b"" in flags:
            raise OSError
        return b"1" in flags

    def step(self, flag=False):
        try:
            if self.rank == 0:
                flag |= self.receive()
                self.send(flag)
                return flag
            self.send(flag)
            return self.receive()
        except OSError:
            raise RuntimeError("[pair.cc:545] Read error: Connection reset by peer")
"""

# A trainer: it sums its steps, so that its state shows whether each was done once. What befalls it stands in the file
# "faults": a line "GENERATION RANK STEP what". Arguments: the last step, steps between checkpoints, and a third one if it is
# to name its stages.
TRAINER = """
import json, os, signal, socket, sys, time
sys.path.insert(0, %r)
import sdtrain

rank, generation = int(os.environ["RANK"]), int(os.environ["SDTRAIN_GENERATION"])
last, every = int(sys.argv[1]), int(sys.argv[2])
faults = [line.split() for line in open("faults")]
state = {"step": 0, "sum": 0}
resumed = sdtrain.resume()
if resumed:
    state = json.load(open(resumed[0] + "/state.json"))
    assert state["step"] == resumed[1], resumed

def fault(step):
    for at_generation, at_rank, at_step, what in faults:
        if (int(at_generation), int(at_rank), int(at_step)) == (generation, rank, step):
            if what == "hang":
                open("hangs", "w").close()
                signal.pause()
            if what.startswith("exit"):
                sys.exit(int(what[4:]))
            os.kill(os.getpid(), int(what))

def save():
    uri = os.getcwd() + "/checkpoints/g%%d-step-%%d" %% (generation, state["step"])
    os.makedirs(uri)
    with open(uri + "/state.json", "w") as file:
        json.dump(state, file)
    return uri

%s
fault(-1)
together = Together()
sdtrain.stacks()
sdtrain.ready()
stage = sdtrain.stage if len(sys.argv) > 3 else lambda name: None
while state["step"] < last:
    stage("compute")
    time.sleep(0.06 if len(sys.argv) > 3 else 0) # 20 stages a second go on: a hang is judged by the time between steps
    fault(state["step"])
    stage("collective")
    together.step()
    state["step"] += 1
    state["sum"] += state["step"]
    sdtrain.step(state["step"], loss=1 / state["step"])
    while os.path.exists("wait-%%d" %% state["step"]) and sdtrain.leaving() is None:
        with open("stands-%%d" %% rank, "w") as file:
            file.write(str(generation))
        time.sleep(0.005)
    leaving = sdtrain.leaving()
    if rank == 0 and (state["step"] %% every == 0 or leaving is not None):
        assert sdtrain.checkpoint(save(), state["step"])
    if leaving is not None:
        break
with open("end-%%d" %% rank, "w") as file:
    json.dump(state, file)
""" % (CLIENT, TOGETHER)
