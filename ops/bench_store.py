# SPDX-License-Identifier: Apache-2.0
"""Figures of the S3 store: a Ceph gateway on loopback, this project, and what others use for the same.

All of a round run one after another, in another order each time, so that what else the machine does meets all
alike; ratios are of one round. A run is a process from its start to its end, its time and CPU as the kernel counts
them; files lie in memory. The gateway has one half of the processors and its clients the other, as on machines of
their own, so that what a client spends does not slow the gateway down. The ceiling is what the gateway gives or takes
when nobody signs, checks or keeps anything: curl processes side by side at a bucket open to all, as many as are fastest.
"""
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
BUCKET = "bench"
MIB, GIB = 1 << 20, 1 << 30
DEVICE_BYTES = 8 * GIB
sys.path.insert(0, os.path.join(ROOT, "tests/s3"))

import fault_proxy  # noqa: E402
import s3client  # noqa: E402


class Store:
    """A gateway with bluestore in memory, all of it there before anything is measured, an open bucket, and a folder in
    memory."""

    def __init__(self, o):
        self.folder = os.path.join(o.dir, "store")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.folder
        self.files = tempfile.mkdtemp(prefix="sdtrain-bench-", dir=memory)
        self.cores = sorted(os.sched_getaffinity(0))
        half = len(self.cores) // 2
        os.sched_setaffinity(0, self.cores[half:])  # the gateway has its parent's
        self.gateway = subprocess.Popen(
            [sys.executable, ROOT + "/tests/s3/gateway", "--store", "bluestore", "--bytes", str(DEVICE_BYTES),
             "--dir", self.path("gateway")], stdout=subprocess.PIPE, text=True)
        if half > 0:
            os.sched_setaffinity(0, self.cores[:half])
        line = self.gateway.stdout.readline()
        if not line:
            raise SystemExit("ops/bench: the gateway did not start")
        server = json.loads(line)
        with open(self.path("gateway/osd/block"), "r+b") as block, tempfile.TemporaryFile(dir=self.files) as file:
            os.posix_fallocate(block.fileno(), 0, DEVICE_BYTES)
            os.posix_fallocate(file.fileno(), 0, 4 * GIB)  # a virtual machine's memory is slow the first time
        self.endpoint = server["endpoint"]
        # nothing of whoever runs this: a proxy, a profile, a CA
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SDTRAIN_S3_")) and
                            "PROXY" not in k.upper() and not k.endswith("CA_BUNDLE")}
        self.environment.update(
            AWS_ENDPOINT_URL=self.endpoint, AWS_ACCESS_KEY_ID=server["access_key"], AWS_REGION=server["region"],
            AWS_SECRET_ACCESS_KEY=server["secret_key"], AWS_EC2_METADATA_DISABLED="true",
            AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
            SDTRAIN_S3_ADDRESSING="path", CEPH_CONF=server["dir"] + "/ceph.conf")
        self.client = s3client.Client(self.endpoint, server["access_key"], server["secret_key"])
        self.client.do("PUT", "/" + BUCKET, headers={"x-amz-acl": "public-read-write"})

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.gateway.terminate()
        self.gateway.wait()
        os.sched_setaffinity(0, self.cores)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.files, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.files, *parts)

    def make_file(self, name, n_bytes):
        with open(self.path(name), "wb") as file:
            for _ in range(n_bytes // MIB):
                file.write(os.urandom(MIB))
        return self.path(name)

    def run(self, commands, **more):
        """Seconds and CPU seconds of commands that run side by side."""
        begin = time.monotonic()
        children = [subprocess.Popen(c, env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL) for c in commands]
        cpu = 0
        for child in children:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                raise SystemExit("ops/bench: %s ended with %d" % (" ".join(child.args)[:300], child.returncode))
            cpu += usage.ru_utime + usage.ru_stime
        return time.monotonic() - begin, cpu

    def sweep(self):
        """What was overwritten or removed is freed now instead of in two hours."""
        subprocess.run(["radosgw-admin", "-n", "client.rgw", "gc", "process", "--include-all"], env=self.environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def open_to_all(self, keys):
        for key in keys:
            self.client.do("PUT", "/%s/%s" % (BUCKET, key), {"acl": ""}, headers={"x-amz-acl": "public-read"})

    def ask(self, *command, **more):
        """The lines of JSON that a bench program prints."""
        out = subprocess.run(command, env=dict(self.environment, **more), stdout=subprocess.PIPE, text=True, check=True).stdout
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def empty(self):
        for key in self.client.list(BUCKET):
            self.client.delete(BUCKET, key)
        self.sweep()


# ---- who moves objects, and how ----

class Mover:
    """put(paths) and get(keys) give the commands that move all of them, side by side."""

    settings = {}

    def __init__(self, store):
        self.store = store

    def uri(self, key=""):
        return "s3://%s/%s" % (BUCKET, key)


class Ours(Mover):
    def __init__(self, store, name="sdtrain", **settings):
        super().__init__(store)
        self.name, self.settings = name, settings

    def put(self, paths):
        return [[BIN + "/bench-store", "put", self.uri(), *paths]]

    def get(self, keys, folder):
        return [[BIN + "/bench-store", "get", self.uri(), folder, *keys]]


class OursIntoMemory(Ours):
    def get(self, keys, folder):
        return [[BIN + "/bench-store", "read", self.uri(), *keys]]


class Aws(Mover):
    """Its transfer manager's settings are in a config file."""

    def __init__(self, store, requests, chunk):
        super().__init__(store)
        self.name = "awscli %d x %d MiB" % (requests, chunk)
        self.settings = {"AWS_CONFIG_FILE": "%s/aws-%d-%d" % (store.folder, requests, chunk)}
        with open(self.settings["AWS_CONFIG_FILE"], "w") as file:
            file.write("[default]\ns3 =\n  max_concurrent_requests = %d\n  multipart_threshold = %dMB\n"
                       "  multipart_chunksize = %dMB\n  addressing_style = path\n" % (requests, chunk, chunk))

    def command(self, *arguments):
        return ["/usr/bin/aws", "--endpoint-url", self.store.endpoint, "s3", "cp", "--quiet", "--recursive", *arguments]

    def put(self, paths):
        return [self.command(os.path.dirname(paths[0]), self.uri())]

    def get(self, keys, folder):
        return [self.command(self.uri(), folder)]


class Rclone(Mover):
    def __init__(self, store, streams, chunk):
        super().__init__(store)
        self.name = "rclone %d x %d MiB" % (streams, chunk)
        self.config = store.folder + "/rclone"
        self.streams, self.chunk = streams, chunk
        with open(self.config, "w") as file:
            file.write("[gateway]\ntype = s3\nprovider = Ceph\naccess_key_id = %s\nsecret_access_key = %s\nendpoint = %s\n" % (
                store.environment["AWS_ACCESS_KEY_ID"], store.environment["AWS_SECRET_ACCESS_KEY"], store.endpoint))

    def command(self, *arguments):
        return ["/usr/bin/rclone", "--config", self.config, "copy", "--transfers", "4", "--s3-chunk-size",
                "%dMi" % self.chunk, "--s3-upload-concurrency", str(self.streams), "--s3-disable-checksum",
                "--s3-no-check-bucket", "--multi-thread-streams", str(self.streams), "--multi-thread-cutoff",
                "%dMi" % self.chunk, "--ignore-checksum", "--no-traverse", "--ignore-times", *arguments]

    def put(self, paths):
        return [self.command(os.path.dirname(paths[0]), "gateway:" + BUCKET)]

    def get(self, keys, folder):
        return [self.command("gateway:" + BUCKET, folder)]


class S3cmd(Mover):
    """Has no concurrency of its own: one process an object, side by side."""

    def __init__(self, store, chunk):
        super().__init__(store)
        self.name = "s3cmd, parts of %d MiB" % chunk
        self.chunk, self.config = chunk, store.folder + "/s3cmd"
        host = store.endpoint.partition("//")[2]
        with open(self.config, "w") as file:
            file.write("[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n" % (
                store.environment["AWS_ACCESS_KEY_ID"], store.environment["AWS_SECRET_ACCESS_KEY"], host, host))

    def command(self, *arguments):
        return ["/usr/bin/s3cmd", "-q", "-c", self.config, "--no-check-md5", "--force",
                "--multipart-chunk-size-mb=%d" % self.chunk, *arguments]

    def put(self, paths):
        return [self.command("put", path, self.uri(os.path.basename(path))) for path in paths]

    def get(self, keys, folder):
        return [self.command("get", self.uri(key), os.path.join(folder, key)) for key in keys]


class Curl(Mover):
    """The ceiling: nothing is signed, checked or kept. signed: the gateway is given the hash of each body, made
    beforehand, and checks it, as it does for all who sign what they put."""

    def __init__(self, store, processes, signed=False):
        super().__init__(store)
        self.name = "curl x %d%s" % (processes, ", signed" if signed else "")
        self.processes, self.signed, self.hashes = processes, signed, {}

    def spread(self, items, arguments):
        shares = [items[i::self.processes] for i in range(self.processes)]
        return [["/usr/bin/curl", "--silent", "--fail", *(a for k, item in enumerate(share)
                                                          for a in (["--next", "--silent", "--fail"] if k else []) +
                                                          arguments(item))] for share in shares if share]

    def path(self, key):
        return "/%s/%s" % (BUCKET, key)

    def headers(self, path, key):
        if not self.signed:
            return []
        if path not in self.hashes:
            with open(path, "rb") as file:
                self.hashes[path] = hashlib.file_digest(file, "sha256").hexdigest()
        signed = self.store.client.sign("PUT", self.path(key), "", {}, self.hashes[path])
        return [a for name, value in signed.items() if name != "host" for a in ("--header", "%s: %s" % (name, value))]

    def put(self, paths):
        named = [(path, os.path.basename(path)) for path in paths]
        return self.spread(named, lambda one: ["--upload-file", one[0], *self.headers(*one),
                                               self.store.endpoint + self.path(one[1])])

    def get(self, keys, folder):
        return self.spread(keys, lambda key: ["--output", "/dev/null", self.store.endpoint + self.path(key)])


# ---- figures ----

def movers(store, putting):
    """Ours as it is by default, the others with the settings that were fastest, and ceilings. What is put is hashed
    and signed by all, since neither TLS nor a checksum guards it; "not signed" leaves that out. What is got goes into
    files, which for ours is the index alone; "into memory", as the trainer reads, is what the ceiling is compared with,
    which keeps nothing either."""
    n_curl, sign = (1, 2, 4), (False, True) if putting else (False,)
    ours = [Ours(store), Ours(store, "sdtrain, not signed", SDTRAIN_S3_SIGN_PAYLOAD="off") if putting else
            OursIntoMemory(store, "sdtrain, into memory")]
    return (ours, [Aws(store, 4, 64), Aws(store, 10, 16), Rclone(store, 2, 64), Rclone(store, 8, 16), S3cmd(store, 64),
                   S3cmd(store, 256)], [Curl(store, n, signed) for n in n_curl for signed in sign])


def by_turns(store, everybody, rounds, n_bytes, commands, say, after):
    """MiB/s and CPU seconds a GiB of each, by name, a value a round."""
    speed, cpu = {m.name: [] for m in everybody}, {m.name: [] for m in everybody}
    for k in range(rounds):
        for m in everybody[k % len(everybody):] + everybody[:k % len(everybody)]:
            seconds, used = store.run(commands(m), **m.settings)
            after(m)
            speed[m.name].append(n_bytes / MIB / seconds)
            cpu[m.name].append(used / (n_bytes / GIB))
        say("round %d: " % (k + 1) + ", ".join("%s %.0f" % (name, v[-1]) for name, v in speed.items()) + " MiB/s")
    return speed, cpu


def ratio(speed, mine, others):
    """Of ours to the fastest of the others, round by round, and who that is."""
    best = max(others, key=lambda m: statistics.median(speed[m.name]))
    return [a / b for a, b in zip(speed[mine.name], speed[best.name])], best.name


def report_ratios(figure, report, groups, speed, cpu, before):
    """To the best peer and to the gateway's ceiling for the same kind of request; either may hold."""
    ours, peers, ceilings = groups
    signed, plain = ([c for c in ceilings if c.signed is wanted] for wanted in (True, False))
    to_peer, peer = ratio(speed, ours[0], peers)
    to_ceiling, ceiling = ratio(speed, *((ours[0], signed) if signed else (ours[1], plain)))
    more = {}
    if signed:
        unsigned, best = ratio(speed, ours[1], plain)
        more = {"not_signed_of_ceiling": round(statistics.median(unsigned), 3), "not_signed_ceiling": best}
    report(figure, "x the best peer", 1.5, to_peer, before, least=True, peer=peer,
           holds=statistics.median(to_peer) >= 1.5 or statistics.median(to_ceiling) >= 0.9,
           of_ceiling=round(statistics.median(to_ceiling), 3), ceiling=ceiling, **more,
           mib_per_s={name: round(statistics.median(v)) for name, v in speed.items()},
           cpu_s_per_gib={name: round(statistics.median(v), 2) for name, v in cpu.items()})


def store_throughput(o, say, report, load):
    """put and get of 256 MiB objects, four at a time: over the best of awscli, rclone, s3cmd, and of the gateway's ceiling"""
    rounds, size, n = (1, 256 * MIB, 2) if o.quick else (5, 256 * MIB, 4)
    with Store(o) as store:
        os.mkdir(store.path("from"))
        os.mkdir(store.path("to"))
        paths = [store.make_file("from/object%d" % k, size) for k in range(n)]
        keys = [os.path.basename(path) for path in paths]

        def took(m):
            for path, key in zip(paths, keys):
                if not isinstance(m, (Curl, OursIntoMemory)) and subprocess.call(["cmp", "-s", path, store.path("to", key)]) != 0:
                    raise SystemExit("ops/bench: %s got something else than what was put" % m.name)
            for name in os.listdir(store.path("to")):
                os.unlink(store.path("to", name))

        groups, before = movers(store, True), load()
        speed, cpu = by_turns(store, sum(groups, []), rounds, n * size, lambda m: m.put(paths), say, lambda m: store.sweep())
        report_ratios("store_put", report, groups, speed, cpu, before)
        store.run(Ours(store).put(paths))  # all get what we have put
        store.open_to_all(keys)
        store.run(Curl(store, 2).get(keys, ""))  # so that whoever comes first has it no colder
        groups, before = movers(store, False), load()
        speed, cpu = by_turns(store, sum(groups, []), rounds, n * size, lambda m: m.get(keys, store.path("to")), say, took)
        report_ratios("store_get", report, groups, speed, cpu, before)


def store_cost(o, say, report, load):
    """CPU seconds a GiB moved from and to memory; memory beyond that of one byte moved, objects to 4 GiB, budget 64 MiB"""
    budget, sizes, rounds = 64, (256 * MIB, GIB) if o.quick else (256 * MIB, GIB, 4 * GIB), 1 if o.quick else 3
    settings = {"SDTRAIN_S3_MEMORY_BYTES": "%dM" % budget, "SDTRAIN_S3_SIGN_PAYLOAD": "off"}
    verbs = ("put", "get", "get_to_file")
    cpu, peak = {verb: [] for verb in verbs}, {verb: {} for verb in verbs}
    before = load()
    with Store(o) as store:
        program, uri, out = BIN + "/bench-store", "s3://" + BUCKET, store.path("to")
        os.mkdir(out)
        for size in (1, *sizes * rounds):
            for verb, command in (("put", ["fill", uri, "object", str(size)]), ("get", ["read", uri, "object"]),
                                  ("get_to_file", ["get", uri, out, "object"])):
                [line] = store.ask(program, *command, **settings)
                peak[verb][size] = max(line["peak_mib"], peak[verb].get(size, 0))
                if size >= GIB:  # so that what each process costs does not weigh
                    cpu[verb].append(line["cpu_s"] / (size / GIB))
                    say("%s of %d MiB: %.2f s of CPU a GiB" % (verb, size / MIB, cpu[verb][-1]))
            if os.path.getsize(out + "/object") != size:
                raise SystemExit("ops/bench: an object of %d bytes came as %d" % (size, os.path.getsize(out + "/object")))
            os.unlink(out + "/object")
            store.empty()
    for verb in ("put", "get"):
        more = {"to_file": round(statistics.median(cpu["get_to_file"]), 2)} if verb == "get" else {}
        report("store_%s_cpu" % verb, "core s/GiB", 0.5, cpu[verb], before, **more)
    for name, verb in (("put", "put"), ("get", "get_to_file")):
        more = {size: peak[verb][size] - peak[verb][1] for size in sizes}
        report("store_%s_memory" % name, "MiB", budget, [max(more.values())], before, one_byte_mib=round(peak[verb][1], 1),
               by_object={"%d MiB" % (size // MIB): round(mib, 1) for size, mib in more.items()})


# ---- what the trainer makes of it ----

SAMPLE_BYTES = 165888


def make_cold(cache):
    """Nothing of a node's cache is there but the compact indices, and those are on the disk alone."""
    for name in os.listdir(cache):
        path = os.path.join(cache, name)
        if not name.endswith(".index"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            continue
        with open(path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def store_samples(o, say, report, load):
    """samples/s of the loader from raw shards of 165,888-byte samples, nothing cached, one core, and the gateway's ceiling"""
    rounds, samples = (1, 6464) if o.quick else (5, 12928)
    with Store(o) as store:
        uri, cache = "s3://%s/data" % BUCKET, store.path("cache")
        program = BIN + "/bench-loader"
        store.ask(program, "make", uri, str(samples))
        store.ask(BIN + "/sdprep", "index", uri)
        keys = [key for key in store.client.list(BUCKET, "data/shard")]
        store.open_to_all(keys)
        n_bytes = sum(store.client.list(BUCKET, "data/shard").values())
        ceilings = [Curl(store, n) for n in (1, 2, 4)]
        os.sched_setaffinity(0, store.cores[:1])
        before, ours, cpu, most = load(), [], [], {m.name: [] for m in ceilings}
        os.mkdir(cache)
        for k in range(rounds):
            make_cold(cache)
            [line] = store.ask(program, "read", uri, cache)
            ours.append(line["samples_per_s"])
            cpu.append(line["cpu_us_per_sample"])
            for m in ceilings:
                seconds, _ = store.run(m.get(keys, ""))
                most[m.name].append(n_bytes / SAMPLE_BYTES / seconds)
            say("round %d: %.0f samples/s, %.0f us of CPU each; " % (k + 1, ours[-1], cpu[-1]) +
                ", ".join("%s %.0f" % (name, v[-1]) for name, v in most.items()))
        ceiling = max(most, key=lambda name: statistics.median(most[name]))
        of_ceiling = statistics.median(a / b for a, b in zip(ours, most[ceiling]))
        report("store_samples", "samples/s", 5000, ours, before, least=True, of_ceiling=round(of_ceiling, 3),
               holds=statistics.median(ours) >= 5000 or of_ceiling >= 0.9, ceiling=ceiling,
               ceiling_samples_per_s=round(statistics.median(most[ceiling])),
               cpu_us_per_sample=round(statistics.median(cpu), 1))


def store_slow_gets(o, say, report, load):
    """samples/s of the loader, 64 reads ahead, each sample a range, where 1 of 50 gets takes a second more; of none slow"""
    rounds, samples = (1, 1600) if o.quick else (3, 3200)
    with Store(o) as store:
        uri, cache = "s3://%s/slow" % BUCKET, store.path("cache")
        store.ask(BIN + "/bench-loader", "make", uri, str(samples))
        store.ask(BIN + "/sdprep", "index", uri, "--sample-hashes")
        proxy = fault_proxy.Remote(store.endpoint)
        os.mkdir(cache)
        before, ratios = load(), []
        for k in range(rounds):
            rates = []
            for slow in (False, True):
                make_cold(cache)
                if slow:
                    proxy.add("slow", {"method": "GET", "headers": {"range": "bytes"}}, delay_sec=1, probability=0.02, count=None)
                [line] = store.ask(BIN + "/bench-loader", "ranges", uri, cache, AWS_ENDPOINT_URL=proxy.endpoint)
                proxy.do("clear")
                rates.append(line["samples_per_s"])
            ratios.append(rates[1] / rates[0])
            say("round %d: %.0f samples/s, %.0f where 1 of 50 gets is slow" % (k + 1, *rates))
        proxy.close()
        report("store_slow_gets", "of none slow", 0.8, ratios, before, least=True)


def store_start(o, say, report, load):
    """a start at position 500,000,000 of 1e9 samples to its first grain of 8: compact index in place, all else cold"""
    runs = 3 if o.quick else 9
    with Store(o) as store:
        uri, cache = "s3://%s/huge" % BUCKET, store.folder + "/cache"
        store.ask(BIN + "/bench-loader", "plan", uri, cache)
        before, values, opened = load(), [], []
        for _ in range(runs):
            make_cold(cache)
            [line] = store.ask(BIN + "/bench-loader", "start", uri, cache)
            values.append(line["start_s"])
            opened.append(line["open_s"])
        report("store_start", "s", 1.0, values, before, open_s=round(statistics.median(opened), 4))


def store_restore(o, say, report, load):
    """restore of a 1 GiB state over reading the same objects and throwing them away, in turns"""
    mib, rounds = (256, 3) if o.quick else (1024, 7)
    before = load()
    with Store(o) as store:
        lines = {line["figure"]: line for line in
                 store.ask(BIN + "/bench-checkpoint", "s3://%s/state" % BUCKET, str(mib), str(rounds))}
    ratio = lines["checkpoint_restore_to_raw"]
    report("store_restore", "x raw", 0.8, [ratio["min"], ratio["value"], ratio["max"]], before, least=True,
           runs=ratio["runs"], mib=mib,
           **{name + "_mib_per_s": round(lines["checkpoint_" + name]["value"]) for name in ("raw", "restore", "save")},
           **{name + "_cpu_s_per_gib": round(lines["checkpoint_%s_cpu" % name]["value"], 2) for name in ("restore", "save")})


FIGURES = [store_throughput, store_cost, store_samples, store_slow_gets, store_start, store_restore]
