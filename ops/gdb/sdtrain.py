# SPDX-License-Identifier: Apache-2.0
"""Commands of gdb that print what the programs know, in the words of sdctl.

    gdb -x ops/gdb/sdtrain.py -p PID        or -x ... PROGRAM CORE

    sdtrain-cluster [EXPRESSION]            sdcontroller, the tests of the core: a Cluster, its nodes and jobs
    sdtrain-world EXPRESSION                a WorldRecord, with its runs, or a LocalWorld
    sdtrain-local-worlds [EXPRESSION]       sdtraind: its slots, and the worlds that it has a part in

An expression is a pointer or the thing itself. Without one the newest frame is taken that has a Cluster or a Workload.
Nothing of the program is called, so that a core file does as well. docs/internals/debugging.md has an example.
"""
import gdb


def plain(value):
    """Through pointers; None for NULL."""
    while value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR:
        if int(value) == 0:
            return None
        value = value.dereference()
    return value


def text(value):
    """A field that is an array of char, or a pointer to some."""
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR and int(value) == 0:
        return ""
    return value.string(errors="replace")


def word(value):
    """An enumerator without its kind: PHASE_RUNNING is running."""
    return str(value).partition("_")[2].lower() or str(value)


def name_of(type_):
    """The name of a struct, through pointers and typedefs."""
    while type_.strip_typedefs().code == gdb.TYPE_CODE_PTR:
        type_ = type_.strip_typedefs().target()
    return type_.strip_typedefs().name or type_.name


def held(symbol, frame, name):
    """The thing of that type that a variable of the frame is, or holds; None: it does not."""
    if not (symbol.is_variable or symbol.is_argument):
        return None
    type_ = name_of(symbol.type)
    fields = [way for holder, way in HOLDERS.get(name, []) if holder == type_]
    if type_ != name and not fields:
        return None
    value = symbol.value(frame)
    value = None if value.is_optimized_out else plain(value)
    for field in fields[0] if fields else ():
        value = None if value is None else plain(value[field])
    return value


# Who has one: a program that waits has its own object on the stack, and no more.
HOLDERS = {"Cluster": [("Leader", ["cluster"]), ("Controller", ["leader", "cluster"]),
                       ("Program", ["manager", "leader", "cluster"])],
           "Workload": [("Manager", ["workload"]), ("Daemon", ["manager", "workload"])]}


def evaluate(expression, name):
    """The thing of that type that the expression means, or that a frame has."""
    if expression:
        value = plain(gdb.parse_and_eval(expression))
        if value is None:
            raise gdb.GdbError("%s is NULL" % expression)
        return value
    frame = gdb.newest_frame()
    while frame:
        try:
            block = frame.block()
        except RuntimeError:
            block = None  # without debugging information
        while block and not block.is_global and not block.is_static:
            for symbol in block:
                value = held(symbol, frame, name)
                if value is not None:
                    return value
            block = block.superblock
        frame = frame.older()
    raise gdb.GdbError("no frame has a %s: give an expression" % name)


def lines(format_, *values):
    gdb.write(format_ % values + "\n")


def slots_of(mask):
    return ",".join(str(i) for i in range(64) if mask >> i & 1) or "none"


class Command(gdb.Command):
    def __init__(self):
        super().__init__(self.name, gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        self.show(argument.strip())


class ClusterCommand(Command):
    """sdtrain-cluster [EXPRESSION]: what a Cluster holds."""
    name = "sdtrain-cluster"

    def show(self, expression):
        c = evaluate(expression, "Cluster")
        lines("term %d, revision %d, now %d us%s", c["term"], c["seen_revision"], c["now_usec"],
              ", holds back" if int(c["hold_until_usec"]) > int(c["now_usec"]) else "")
        names = {}
        for i in range(int(c["n_by_name"])):
            n = int(c["by_name"][i])
            node = c["nodes"][n]
            record = node["record"]
            names[n] = text(record["name"])
            lines("node %s: %s, %d slots, lost slots %s, changed at %d us", names[n],
                  "present" if node["present"] else "missed" if node["missed"] else "gone", record["n_slots"],
                  slots_of(int(record["lost_slots"])), node["changed_usec"])
        for i in range(int(c["n_by_arrival"])):
            at = int(c["by_arrival"][i])
            job = c["jobs"][at]
            phase = job["phase"]
            lines("job %s: %s, generation %d, failing %s%s", text(job["name"]), word(phase["phase"]), phase["generation"],
                  "since %d us" % job["failing_usec"] if int(job["failing_usec"]) else "not",
                  ", a decision is under way" if int(job["in_flight"]) else "")
            first = at * int(c["limits"]["nodes"])
            for k in range(int(job["n_runs"])):
                run = c["runs"][first + k]
                lines("  ranks from %d: node %s, slots %s", run["first_rank"], names.get(int(run["node"]), run["node"]),
                      slots_of(int(run["slots"])))
        for i in range(int(c["limits"]["incidents"])):
            incident = c["incidents"][i]
            if incident["used"] and word(incident["record"]["state"]) == "open":
                record = incident["record"]
                lines("incident %s: %s %s%s", text(record["id"]), text(record["cause"]), text(record["job"]), text(record["node"]))


class WorldCommand(Command):
    """sdtrain-world EXPRESSION: a WorldRecord or a LocalWorld."""
    name = "sdtrain-world"

    def show(self, expression):
        if not expression:
            raise gdb.GdbError("give an expression: a WorldRecord or a LocalWorld")
        world = evaluate(expression, "WorldRecord")
        if name_of(world.type) == "LocalWorld":
            LocalWorldsCommand.world(world, "world")
            return
        lines("world of generation %d: %d ranks", world["generation"], world["size"])
        if not int(world["runs"]):
            return  # elsewhere: a Cluster keeps the runs itself
        first = 0
        for i in range(int(world["n_runs"])):
            run = world["runs"][i]
            lines("  ranks from %d: node %s, slots %s", first, text(run["node"]), slots_of(int(run["slots"])))
            first += bin(int(run["slots"])).count("1")


class LocalWorldsCommand(Command):
    """sdtrain-local-worlds [EXPRESSION]: what lives in the slots of a Workload, and its jobs."""
    name = "sdtrain-local-worlds"

    @staticmethod
    def world(world, title):
        lines("  %s of generation %d: %d ranks, %d here%s", title, world["generation"], world["world_size"],
              world["n_local_ranks"], ", over" if world["over"] else "")
        for i in range(int(world["n_local_ranks"])):
            local = world["local_ranks"][i]
            report = local["report"]
            lines("    rank %d: slot %d, %s, step %d, pid %d", report["rank"], local["slot"],
                  "pending" if local["pending"] else word(report["state"]), report["step"], report["pid"])

    def show(self, expression):
        w = evaluate(expression, "Workload")
        if name_of(w.type) == "Manager":
            w = w["workload"]
        config = plain(w["needs"]["config"])
        lines("node %s, lost slots %s", text(config["node"]), slots_of(int(w["slots"]["lost"])))
        for slot in range(int(config["slots"])):
            rank = plain(w["slots"]["of"][slot])
            if rank is None:
                lines("slot %d: empty", slot)
            else:
                lines("slot %d: rank %d of %s, generation %d, pid %d%s%s", slot, rank["rank"], text(rank["job"]),
                      rank["generation"], rank["process"]["pid"], ", being killed" if rank["killing"] else "",
                      ", exited" if rank["process"]["exited"] else "")
        job = plain(w["jobs"])
        while job is not None:
            lines("job %s: %s", text(job["name"]), word(job["phase"]["phase"]) if job["has_phase"] else "no phase")
            world = plain(job["local"])
            if world is not None:
                self.world(world, "world")
            world = plain(job["over"])
            while world is not None:
                self.world(world, "ended world")
                world = plain(world["next"])
            job = plain(job["next"])


ClusterCommand()
WorldCommand()
LocalWorldsCommand()
