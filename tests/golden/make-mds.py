#!/usr/bin/env python3
"""Writes tests/golden/mds/: small datasets by the real writer, for data/test/test-golden.c.

    pip install mosaicml-streaming==0.13.0 numpy==2.1.3 zstd==1.5.7.2
    tests/golden/make-mds.py tests/golden/mds

Every value is a function of the sample's number, which the test repeats.
"""
import os
import shutil
import sys
from decimal import Decimal

import numpy as np
from streaming import MDSWriter

HASHES = ['blake2s', 'md5', 'sha1', 'sha256', 'sha3_256', 'xxh128', 'xxh32', 'xxh3_64', 'xxh64']


def write(folder, columns, samples, **options):
    with MDSWriter(out=os.path.join(out, folder), columns=columns, **options) as writer:
        for sample in samples:
            writer.write(sample)


def scalars(i):
    return {
        'a_int': -i * 10**12, 'b_u8': i, 'b_u16': i * 257, 'b_u32': i * 65537, 'b_u64': i * 2**40,
        'c_i8': -i, 'c_i16': -i * 100, 'c_i32': -i * 10**6, 'c_i64': -i * 10**12,
        'd_f16': i / 8, 'd_f32': i / 3, 'd_f64': i / 7,
        'e_int': i * 10**15, 'e_float': i / 7, 'e_decimal': Decimal(i) / 8,
        'f_str': 'käse\t"%d"' % i, 'g_json': {'i': i, 'ü': [1, None]}, 'h_bytes': bytes(range(i)),
    }


SCALARS = {
    'a_int': 'int', 'b_u8': 'uint8', 'b_u16': 'uint16', 'b_u32': 'uint32', 'b_u64': 'uint64',
    'c_i8': 'int8', 'c_i16': 'int16', 'c_i32': 'int32', 'c_i64': 'int64',
    'd_f16': 'float16', 'd_f32': 'float32', 'd_f64': 'float64',
    'e_int': 'str_int', 'e_float': 'str_float', 'e_decimal': 'str_decimal',
    'f_str': 'str', 'g_json': 'json', 'h_bytes': 'bytes',
}

TYPES = ['uint8', 'int8', 'uint16', 'int16', 'float16', 'uint32', 'int32', 'float32', 'uint64',
         'int64', 'float64']


def arrays(i):
    values = np.arange(6) + i
    return {
        'any': values.astype(TYPES[i % len(TYPES)]).reshape([(6,), (2, 3), (1, 3, 2)][i % 3]),
        'typed': np.full((1 + 100 * i,), i, np.float32),
        'fixed': values.astype(np.float16).reshape(3, 2),
        'ümlaut': np.array([[i]], np.int64),
        'jpeg': b'\xff\xd8' + bytes([i]) * i,
    }


def latents(i, dtype):
    return {
        'latents_256': b'' if i % 5 == 3 else ((np.arange(16) - 8 + i % 3) / 4).astype(dtype).tobytes(),
        'caption_latents': (np.arange(24) / 8 - i).astype(dtype).tobytes(),
        'caption': 'picture %d' % i,
    }


LATENTS = {'latents_256': 'bytes', 'caption_latents': 'bytes', 'caption': 'str'}

out = sys.argv[1]
shutil.rmtree(out, ignore_errors=True)
write('scalars', SCALARS, map(scalars, range(30)), hashes=HASHES, size_limit=3000)
write('arrays', {'any': 'ndarray', 'typed': 'ndarray:float32', 'fixed': 'ndarray:float16:3,2',
                 'ümlaut': 'ndarray:int64:1,1', 'jpeg': 'jpeg'},
      map(arrays, range(12)), size_limit=None)
write('half', LATENTS, (latents(i, np.float16) for i in range(40)), size_limit=1000)
write('single', LATENTS, (latents(i, np.float32) for i in range(10)), hashes=['xxh3_64'])
write('zstd', LATENTS, (latents(i, np.float16) for i in range(40)), size_limit=2000,
      compression='zstd:7', hashes=['sha1', 'xxh3_64'])
# A first sample beyond the limit: the writer puts an empty shard in front.
write('large', {'x': 'bytes'}, ({'x': bytes(n)} for n in (500, 10, 10)), size_limit=300)
np.save(os.path.join(out, 'half', 'empty.npy'), (np.arange(24) / 16).reshape(3, 8).astype(np.float16))
np.save(os.path.join(out, 'single', 'empty.npy'), np.zeros((3, 8), np.float32))
