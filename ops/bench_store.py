"""Figures of the S3 store: a Ceph gateway on loopback, this project, and what others use for the same.

All of a round run one after another, in another order each time, so that what else the machine does meets all
alike; ratios are of one round. A run is a process from its start to its end, its time and CPU as the kernel counts
them; files lie in memory. The ceiling is what the gateway gives or takes when nobody signs, checks or keeps
anything: curl processes side by side at a bucket open to all, as many as are fastest.
"""
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
sys.path.insert(0, os.path.join(ROOT, "tests/s3"))

import s3client  # noqa: E402


class Store:
    """A gateway with bluestore in a sparse file, an open bucket, and a folder in memory."""

    def __init__(self, o):
        self.folder = os.path.join(o.dir, "store")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.gateway = subprocess.Popen(
            [sys.executable, ROOT + "/tests/s3/gateway", "--dir", self.folder + "/gateway", "--store", "bluestore",
             "--bytes", str(24 * GIB)], stdout=subprocess.PIPE, text=True)
        line = self.gateway.stdout.readline()
        if not line:
            raise SystemExit("ops/bench: the gateway did not start")
        server = json.loads(line)
        self.endpoint = server["endpoint"]
        # nothing of whoever runs this: a proxy, a profile, a CA
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SDTRAIN_S3_")) and
                            "PROXY" not in k.upper() and not k.endswith("CA_BUNDLE")}
        self.environment.update(
            AWS_ENDPOINT_URL=self.endpoint, AWS_ACCESS_KEY_ID=server["access_key"], AWS_REGION=server["region"],
            AWS_SECRET_ACCESS_KEY=server["secret_key"], AWS_EC2_METADATA_DISABLED="true",
            AWS_CONFIG_FILE=self.folder + "/aws", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
            SDTRAIN_S3_ADDRESSING="path", CEPH_CONF=server["dir"] + "/ceph.conf")
        self.client = s3client.Client(self.endpoint, server["access_key"], server["secret_key"])
        self.client.do("PUT", "/" + BUCKET, headers={"x-amz-acl": "public-read-write"})
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.folder
        self.files = tempfile.mkdtemp(prefix="sdtrain-bench-", dir=memory)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.gateway.terminate()
        self.gateway.wait()
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
        """Seconds, CPU seconds and the largest resident memory (MiB) of commands that run side by side."""
        begin = time.monotonic()
        children = [subprocess.Popen(c, env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL) for c in commands]
        cpu = peak = 0
        for child in children:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                raise SystemExit("ops/bench: %s ended with %d" % (" ".join(child.args)[:300], child.returncode))
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss / 1024)
        return time.monotonic() - begin, cpu, peak

    def sweep(self):
        """What was overwritten or removed is freed now instead of in two hours."""
        subprocess.run(["radosgw-admin", "-n", "client.rgw", "gc", "process", "--include-all"], env=self.environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def empty(self):
        for key in self.client.list(BUCKET):
            self.client.delete(BUCKET, key)
        self.sweep()


# ---- who moves objects, and how ----

class Mover:
    """put(paths) and get(keys) give the commands that move all of them, side by side."""

    def __init__(self, store):
        self.store = store

    def uri(self, key=""):
        return "s3://%s/%s" % (BUCKET, key)


class Ours(Mover):
    name = "sdtrain"

    def put(self, paths):
        return [[BIN + "/bench-store", "put", self.uri(), *paths]]

    def get(self, keys, folder):
        return [[BIN + "/bench-store", "get", self.uri(), folder, *keys]]


class Aws(Mover):
    """Its transfer manager's settings are in the config file: each variant has a profile."""

    def __init__(self, store, requests, chunk):
        super().__init__(store)
        self.name = "awscli %d x %d MiB" % (requests, chunk)
        self.profile = "p%d-%d" % (requests, chunk)
        with open(store.environment["AWS_CONFIG_FILE"], "a") as file:
            file.write("[profile %s]\naws_access_key_id = %s\naws_secret_access_key = %s\ns3 =\n"
                       "  max_concurrent_requests = %d\n  multipart_threshold = %dMB\n  multipart_chunksize = %dMB\n"
                       "  addressing_style = path\n" % (
                           self.profile, store.environment["AWS_ACCESS_KEY_ID"],
                           store.environment["AWS_SECRET_ACCESS_KEY"], requests, chunk, chunk))

    def command(self, *arguments):
        return ["/usr/bin/aws", "--profile", self.profile, "--endpoint-url", self.store.endpoint, "s3", "cp", "--quiet",
                "--recursive", *arguments]

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
    """The ceiling: nothing is signed, checked or kept."""

    def __init__(self, store, processes):
        super().__init__(store)
        self.name, self.processes = "curl x %d" % processes, processes

    def spread(self, items, arguments):
        shares = [items[i::self.processes] for i in range(self.processes)]
        return [["/usr/bin/curl", "--silent", "--fail", *(a for item in share for a in arguments(item))]
                for share in shares if share]

    def url(self, key):
        return "%s/%s/%s" % (self.store.endpoint, BUCKET, key)

    def put(self, paths):
        return self.spread(paths, lambda path: ["--upload-file", path, self.url(os.path.basename(path))])

    def get(self, keys, folder):
        return self.spread(keys, lambda key: ["--output", "/dev/null", self.url(key)])


# ---- figures ----

def movers(store):
    """Ours as it is by default; the others with the settings that were fastest, two or three of each."""
    return ([Ours(store)], [Aws(store, 4, 64), Aws(store, 10, 16), Rclone(store, 2, 64), Rclone(store, 8, 16),
                            S3cmd(store, 64), S3cmd(store, 256)], [Curl(store, n) for n in (1, 2, 4)])


def by_turns(store, everybody, rounds, n_bytes, commands, say, after):
    """MiB/s and CPU seconds a GiB of each, by name, a value a round."""
    speed, cpu = {m.name: [] for m in everybody}, {m.name: [] for m in everybody}
    for k in range(rounds):
        for m in everybody[k % len(everybody):] + everybody[:k % len(everybody)]:
            seconds, used, _ = store.run(commands(m))
            after(m)
            speed[m.name].append(n_bytes / MIB / seconds)
            cpu[m.name].append(used / (n_bytes / GIB))
        say("round %d: " % (k + 1) + ", ".join("%s %.0f MiB/s" % (name, v[-1]) for name, v in speed.items()))
    return speed, cpu


def report_ratios(figure, report, groups, speed, cpu, before):
    """Of ours to the best peer and to the ceiling, round by round; either may hold."""
    ours, peers, ceilings = ([m.name for m in group] for group in groups)
    median = {name: statistics.median(v) for name, v in speed.items()}
    peer, ceiling = max(peers, key=median.get), max(ceilings, key=median.get)
    of = lambda name: [a / b for a, b in zip(speed[ours[0]], speed[name])]  # noqa: E731
    of_ceiling = statistics.median(of(ceiling))
    report(figure, "x the best peer", 1.5, of(peer), before, least=True, peer=peer, of_ceiling=round(of_ceiling, 3),
           ceiling=ceiling, holds=statistics.median(of(peer)) >= 1.5 or of_ceiling >= 0.9,
           mib_per_s={name: round(v) for name, v in median.items()},
           cpu_s_per_gib={name: round(statistics.median(v), 2) for name, v in cpu.items()})


def store_throughput(o, say, report, load):
    """put and get of 256 MiB objects, four at a time: over the best of awscli, rclone, s3cmd, and of the gateway's ceiling"""
    rounds, size, n = (1, 64 * MIB, 4) if o.quick else (5, 256 * MIB, 4)
    with Store(o) as store:
        groups = movers(store)
        os.mkdir(store.path("from"))
        os.mkdir(store.path("to"))
        paths = [store.make_file("from/object%d" % k, size) for k in range(n)]
        keys = [os.path.basename(path) for path in paths]
        everybody = [m for group in groups for m in group]

        def took(m):
            for path, key in zip(paths, keys):
                if not isinstance(m, Curl) and subprocess.call(["cmp", "-s", path, store.path("to", key)]) != 0:
                    raise SystemExit("ops/bench: %s got something else than what was put" % m.name)
            for name in os.listdir(store.path("to")):
                os.unlink(store.path("to", name))

        before = load()
        speed, cpu = by_turns(store, everybody, rounds, n * size, lambda m: m.put(paths), say, lambda m: store.sweep())
        report_ratios("store_put", report, groups, speed, cpu, before)
        # those of the last put are got, whoever that was: ours, in parts of 8 MiB as the trainer writes them
        store.run(Ours(store).put(paths))
        for key in keys:
            store.client.do("PUT", "/%s/%s" % (BUCKET, key), {"acl": ""}, headers={"x-amz-acl": "public-read"})
        before = load()
        speed, cpu = by_turns(store, everybody, rounds, n * size, lambda m: m.get(keys, store.path("to")), say, took)
        report_ratios("store_get", report, groups, speed, cpu, before)


def store_cost(o, say, report, load):
    """CPU seconds a GiB, and memory beyond that of one byte moved, of objects from 256 MiB to 4 GiB (budget 64 MiB)"""
    budget, sizes = 64, (256 * MIB, GIB) if o.quick else (256 * MIB, GIB, 4 * GIB)
    settings = {"SDTRAIN_S3_MEMORY_BYTES": "%dM" % budget, "SDTRAIN_S3_SIGN_PAYLOAD": "off"}
    cpu, peak = {"put": [], "get": []}, {"put": [], "get": []}
    before = load()
    with Store(o) as store:
        program, uri = BIN + "/bench-store", "s3://" + BUCKET
        out = store.folder + "/got"
        os.mkdir(out)
        for size in (1, *sizes):
            for verb, command in (("put", [program, "fill", uri, "object", str(size)]),
                                  ("get", [program, "get", uri, out, "object"])):
                _, used, mib = store.run([command], **settings)
                peak[verb].append(mib)
                cpu[verb].append(used / (size / GIB))
                say("%s of %d bytes: %.2f s of CPU a GiB, %.1f MiB" % (verb, size, cpu[verb][-1], mib))
            if os.path.getsize(out + "/object") != size:
                raise SystemExit("ops/bench: an object of %d bytes came as %d" % (size, os.path.getsize(out + "/object")))
            os.unlink(out + "/object")
            store.empty()
    for verb in ("put", "get"):
        report("store_%s_cpu" % verb, "core s/GiB", 0.5, cpu[verb][1:], before)
        idle, more = peak[verb][0], [mib - peak[verb][0] for mib in peak[verb][1:]]
        report("store_%s_memory" % verb, "MiB", budget, [max(more)], before, idle_mib=round(idle, 1),
               by_object={"%d MiB" % (size // MIB): round(mib, 1) for size, mib in zip(sizes, more)})


FIGURES = [store_throughput, store_cost]
