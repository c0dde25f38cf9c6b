# SPDX-License-Identifier: Apache-2.0
"""Order and randomness of a job, written from docs/reference/order.md alone: nothing of the project is used here."""
import math
import struct

M32, M64 = (1 << 32) - 1, (1 << 64) - 1

# ---- XXH3-64 of 4 to 16 bytes with a seed ----

SECRET = bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
                       "cb79e64eccc0e578825ad07dccff7221b8084674f743248e")


def _read(data, at, n):
    return int.from_bytes(data[at:at + n], "little")


def hash64(name, seed):
    data = name.encode("ascii")
    n = len(data)
    if 4 <= n <= 8:
        seed ^= int.from_bytes(struct.pack("<I", seed & M32), "big") << 32
        flip = ((_read(SECRET, 8, 8) ^ _read(SECRET, 16, 8)) - seed) & M64
        h = (_read(data, n - 4, 4) + (_read(data, 0, 4) << 32)) ^ flip
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & M64
        h = h * 0x9FB21C651E98DF25 & M64
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    assert 9 <= n <= 16
    low = _read(data, 0, 8) ^ ((_read(SECRET, 24, 8) ^ _read(SECRET, 32, 8)) + seed & M64)
    high = _read(data, n - 8, 8) ^ ((_read(SECRET, 40, 8) ^ _read(SECRET, 48, 8)) - seed & M64)
    product = low * high
    h = n + int.from_bytes(low.to_bytes(8, "little"), "big") + high + (product & M64 ^ product >> 64) & M64
    h = (h ^ h >> 37) * 0x165667919E3779F9 & M64
    return h ^ h >> 32


# ---- Philox4x32-10 ----

def philox(key, high, low):
    c = [low & M32, low >> 32, high & M32, high >> 32]
    k0, k1 = key & M32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & M32, p0 >> 32 ^ c[3] ^ k1, p0 & M32]
        k0, k1 = k0 + 0x9E3779B9 & M32, k1 + 0xBB67AE85 & M32
    return c


# ---- draws ----

def timestep(seed, position, n_steps):
    return philox(hash64("timestep", seed), position, 0)[0] * n_steps >> 32


def caption_is_dropped(seed, position, probability):
    return philox(hash64("caption-drop", seed), position, 0)[0] * 2.0 ** -32 < probability


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def _horner(x, coefficients):
    p = coefficients[0]
    for c in coefficients[1:]:
        p = p * x + c
    return p


def log(x):
    m, k = math.frexp(x)  # x = m 2^k, m in [1/2, 1)
    m, k = 2 * m, k - 1
    if m > float.fromhex("0x1.6a09e667f3bcdp+0"):
        m, k = m * 0.5, k + 1
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    p = _horner(s2, [1.0 / 23.0] + [1.0 / odd for odd in range(21, 2, -2)])
    tail = 2.0 * s * s2 * p
    return k * float.fromhex("0x1.62e42fefa3800p-1") + (2.0 * s + (tail + k * float.fromhex("0x1.ef35793c76730p-45")))


def _sin(r):
    r2 = r * r
    return r + r * r2 * _horner(r2, [(-1.0 if n % 4 == 3 else 1.0) / math.factorial(n) for n in range(17, 2, -2)])


def _cos(r):
    r2 = r * r
    p = _horner(r2, [(-1.0 if n % 4 == 2 else 1.0) / math.factorial(n) for n in range(18, 3, -2)])
    return 1.0 - (0.5 * r2 - r2 * r2 * p)


def sin_cos(x):
    k = float(round(x * float.fromhex("0x1.45f306dc9c883p-1")))
    r = ((x - k * float.fromhex("0x1.921fb54400000p+0")) - k * float.fromhex("0x1.0b4611a600000p-34")) \
        - k * float.fromhex("0x1.3198a2e037073p-69")
    q = int(k) & 3
    sin, cos = (_cos(r), _sin(r)) if q & 1 else (_sin(r), _cos(r))
    return -sin if q & 2 else sin, -cos if q in (1, 2) else cos


def normal_pair(word0, word1):
    u = (word0 + 0.5) * 2.0 ** -32
    angle = (word1 + 0.5) * (2.0 ** -32 * float.fromhex("0x1.921fb54442d18p+2"))
    radius = math.sqrt(-2.0 * log(u))
    sin, cos = sin_cos(angle)
    return f32(radius * cos), f32(radius * sin)


def noise(seed, position, n):
    """The first n elements of a sample's noise, in NHWC order."""
    key, values = hash64("noise", seed), []
    for block in range((n + 3) // 4):
        w = philox(key, position, block)
        values += normal_pair(w[0], w[1]) + normal_pair(w[2], w[3])
    return values[:n]


# ---- initial weights ----

def initial_weights(seed, tensors):
    """tensors: [(name, shape)] in the order of the file. Yields (name, values)."""
    key, shapes = hash64("initial weights", seed), dict(tensors)
    for number, (name, shape) in enumerate(tensors):
        n, weight = math.prod(shape), shapes[name.rpartition(".")[0] + ".weight"]
        if len(weight) == 1:
            yield name, [1.0 if name.endswith(".weight") else 0.0] * n
            continue
        bound, values = f32(1.0 / math.sqrt(math.prod(weight[1:]))), []
        for block in range((n + 3) // 4):
            values += [f32((2 * ((word >> 8) * 2.0 ** -24) - 1) * bound) for word in philox(key, number, block)]
        yield name, values[:n]


# ---- order ----

GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def derive(key, word):
    return mix(mix(key + GOLDEN & M64) ^ (word * GOLDEN + 1 & M64))


def permute(key, n, x):
    if n == 1:
        return 0
    bits = (n - 1).bit_length()
    high_bits = bits // 2
    low_bits = bits - high_bits
    step = mix(key ^ GOLDEN)
    while True:
        low, high, round_key = x & (1 << low_bits) - 1, x >> low_bits, key
        for _ in range(3):
            high ^= ((low ^ round_key) * GOLDEN & M64) >> 32 & (1 << high_bits) - 1
            round_key = round_key + step & M64
            low ^= ((high ^ round_key) * GOLDEN & M64) >> 32 & (1 << low_bits) - 1
            round_key = round_key + step & M64
        x = high << low_bits | low
        if x < n:
            return x


class Order:
    def __init__(self, streams, seed, window):
        """streams: [(samples, unit, proportion)]"""
        self.streams, self.window = streams, window
        self.keys = [derive(seed, i) for i in range(len(streams))]
        total = sum(p for _, _, p in streams)
        shares = [p / total * 2.0 ** 32 for _, _, p in streams]
        self.parts = [int(share) for share in shares]
        rest = [share - part for share, part in zip(shares, self.parts)]
        while sum(self.parts) < 1 << 32:
            best = max(range(len(rest)), key=lambda i: (rest[i], -i))
            self.parts[best] += 1
            rest[best] = -1.0
        self.tree = self._split([i for i in range(len(streams)) if streams[i][2] > 0])

    def _split(self, leaves):
        if len(leaves) == 1:
            return leaves[0]
        total, cut, left = sum(self.parts[i] for i in leaves), 1, self.parts[leaves[0]]
        while cut < len(leaves) - 1 and left + self.parts[leaves[cut]] // 2 < total // 2:
            left += self.parts[leaves[cut]]
            cut += 1
        return left, total, self._split(leaves[:cut]), self._split(leaves[cut:])

    def at(self, position):
        """(stream, pass, sample)"""
        node, t = self.tree, position
        while isinstance(node, tuple):
            part, total, left, right = node
            before, after = ((k * part + total // 2) // total for k in (t, t + 1))
            node, t = (left, before) if after > before else (right, t - before)
        n, unit, _ = self.streams[node]
        number, index = divmod(t, n)
        return node, number, self._sample(n, unit, derive(self.keys[node], number), index)

    def _sample(self, n, unit, key, index):
        w = index // self.window
        first = w * self.window
        index = first + permute(derive(key, w + 2), min(self.window, n - first), index - first)
        full = n // unit
        short = n - full * unit
        if short > 0:
            slot = derive(key, 1) % (full + 1)
            if index >= slot * unit:
                if index < slot * unit + short:
                    return full * unit + index - slot * unit
                index -= short
        return permute(derive(key, 0), full, index // unit) * unit + index % unit
