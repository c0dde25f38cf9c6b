# SPDX-License-Identifier: Apache-2.0
"""Figures of failover, on machines with addresses of their own (tests/chaos): needs root."""
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
STEP_GRAINS = 6  # over three ranks: two grains of 0.1 s each


@contextlib.contextmanager
def lab_of_machines():
    """A lab, and the module tests/chaos/machines.py."""
    os.environ.update(SDTRAIN_BIN=BIN, SDTRAIN_SOURCE=ROOT)
    sys.path[:0] = [os.path.join(ROOT, "tests/chaos"), os.path.join(ROOT, "tests/system")]
    import lab as system
    import machines as chaos
    import network
    reason = network.why_not()
    if reason:
        raise SystemExit("ops/bench: " + reason)
    lab = system.Lab()
    try:
        yield lab, chaos
    finally:
        lab.close()


@contextlib.contextmanager
def machines(name, pace=True):
    """A cluster of three nodes that trains a job of 0.2 s steps, and a function that waits until it does again."""
    with lab_of_machines() as (lab, chaos):
        lab.data("data", 96)
        cluster = chaos.Machines(lab, **({} if pace else {"pace": None}))
        job = lab.job(name, world={"min": 1, "max": 3}, train__steps=1000000, train__global_batch=STEP_GRAINS,
                      checkpoint__every_steps=10, recovery={"max_failures_at_same_step": 100, "grow_interval_s": 0})
        cluster.submit(job)

        def trains(size=3, steps=8):
            """Its records, once so many ranks have done some steps."""
            def look():
                r = cluster.steady(job, size)
                return r if r and r["progress/" + name]["step"] >= r["worlds/" + name]["resume"]["step"] + steps else None
            return chaos.until(look, "steps of %s" % name, 120)
        trains()
        yield cluster, job, trains


def node_of(records, job, rank):
    return records["worlds/" + job["name"]]["runs"][rank]["node"]


def recovered(cluster, job, generation):
    """The incident of that generation, once the next world has completed a step."""
    from machines import until
    return until(lambda: next((i for i in cluster.incidents(generation) if i["generation"] == generation and
                               i.get("first_step_usec")), None), "recovery", 120)


def phases_of(incidents):
    names = [name for name in ("detect_s", "decide_s", "stop_s", "start_s", "restore_s")]
    return {name: round(statistics.median(i.get(name, 0) for i in incidents), 3) for name in names}


def silent_death(o, say, report, load):
    """power loss of a node (port down, then SIGKILL) to the first step that the next world completes; lease_sec 2"""
    before, values, seen = load(), [], []
    with machines("silent") as (cluster, job, trains):
        for k in range(3 if o.quick else 11):
            records = trains()
            victim = node_of(records, job, k % 3)
            at = time.time()
            cluster.power_off(victim)
            incident = recovered(cluster, job, records["worlds/silent"]["generation"])
            values.append(incident["first_step_usec"] / 1e6 - at)
            seen.append(incident)
            say("%s lost power: %.2f s, %s" % (victim, values[-1], incident["cause"]))
            cluster.power_on(victim)
    report("silent_death", "s", 3.5, values, before, causes=sorted({i["cause"] for i in seen}),
           phases=phases_of(seen))


def hang(o, say, report, load):
    """SIGSTOP of a rank, at steps of 0.2 s, to the first step of the next world; and whether the right one is named"""
    before, values, named, seen = load(), [], 0, []
    with machines("hang") as (cluster, job, trains):
        for k in range(3 if o.quick else 11):
            records, rank = trains(), k % 3
            generation = records["worlds/hang"]["generation"]
            node = node_of(records, job, rank)
            pid = records["ranks/hang/%d/%s" % (generation, node)]["ranks"][0]["pid"]
            at = time.time()
            os.kill(pid, signal.SIGSTOP)
            incident = recovered(cluster, job, generation)
            values.append(incident["first_step_usec"] / 1e6 - at)
            right = (incident["cause"], incident.get("node"), incident.get("rank")) == ("hang", node, rank)
            named += right
            seen.append(incident)
            say("rank %d stopped: %.2f s, %s of rank %s: %s" % (rank, values[-1], incident["cause"],
                                                               incident.get("rank"), incident["evidence"]))
    report("hang", "s", 5.0, values, before, right_rank_named="%d of %d" % (named, len(values)), phases=phases_of(seen))


def hang_false_alarms(o, say, report, load):
    """hangs that are declared while nothing hangs, on a machine with more work than processors, in --minutes"""
    seconds, busy = 60 * (1 if o.quick else o.minutes), 2 * (os.cpu_count() or 1)
    with machines("calm", pace=False) as (cluster, job, trains):
        records = trains()
        generation = records["worlds/calm"]["generation"]
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        before = load()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(1)
            trained = trains()["progress/calm"]["step"] - records["progress/calm"]["step"]
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
        incidents = cluster.incidents(generation)
        say("%d steps beside %d busy processes: %s" % (trained, busy, [i["cause"] for i in incidents] or "no incident"))
    report("hang_false_alarms", "alarms", 0, [len(incidents)], before, minutes=round(seconds / 60, 1), steps=trained,
           busy_processes=busy)


def node_return(o, say, report, load):
    """a node is started again to the first step that a world with it completes; grow_interval_s 0"""
    before, values = load(), []
    with machines("return") as (cluster, job, trains):
        for k in range(3 if o.quick else 11):
            records = trains()
            victim = node_of(records, job, k % 3)
            cluster.power_off(victim)
            recovered(cluster, job, records["worlds/return"]["generation"])
            generation = cluster.records("worlds/")["worlds/return"]["generation"]
            at = time.time()
            cluster.power_on(victim)
            values.append(first_step(cluster, "return", generation + 1) - at)
            say("%s trains %.2f s after its start" % (victim, values[-1]))
    report("node_return", "s", 2.0, values, before)


def first_step(cluster, job, generation):
    """When the world of that generation had completed its first step."""
    from machines import until

    def look():
        for key, record in cluster.records("ranks/%s/%d/" % (job, generation)).items():
            if record.get("first_step_usec"):
                return record["first_step_usec"] / 1e6
        return None
    return until(look, "the first step of generation %d" % generation, 60)


FIGURES = [silent_death, hang, hang_false_alarms, node_return]
