#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mosaicml-streaming reads what `sdprep encode` made: each sample, its shards' hashes checked, equal to the bytes in the shards.

    read-dataset.py --bin DIR      from a Python that has mosaicml-streaming (tests/interop/streaming)
"""
import argparse
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--bin", required=True)
chosen, rest = arguments.parse_known_args()
os.environ["SDTRAIN_BIN"] = os.path.abspath(chosen.bin)

import numpy  # noqa: E402
import streaming  # noqa: E402

from encoded import EncodeCase, samples  # noqa: E402


class Read(EncodeCase):
    def test_each_sample(self):
        out = self.lab.path("streamed")
        recipe = self.write_recipe("streamed", keep={"caption": "str", "key": "str", "width": "int64", "score": "float64"})
        code, text = self.encode(recipe, out)
        self.assertEqual(code, 0, text)
        rows = samples(out)
        dataset = streaming.StreamingDataset(local=out, shuffle=False, batch_size=1, validate_hash="xxh3_64")
        self.assertEqual((len(dataset), len(rows)), (32, 32))
        for sample, row in zip((dataset[i] for i in range(len(dataset))), rows):
            self.assertEqual(sorted(sample), ["caption", "key", "latents", "score", "text", "width"])
            for name, shape in (("latents", (4, 8, 8)), ("text", (77, 64))):
                self.assertEqual((sample[name].shape, sample[name].dtype), (shape, numpy.float16))
                self.assertEqual(sample[name].tobytes(), row[name])
                self.assertTrue(numpy.isfinite(sample[name]).all())
            number = int(sample["key"])
            self.assertEqual((sample["caption"], int(sample["width"]), float(sample["score"])),
                             ("a caption, number %d" % number, number, number / 2))
        # Shuffled over two passes, as a job of Streaming reads it: each sample once a pass.
        dataset = streaming.StreamingDataset(local=out, shuffle=True, batch_size=1, num_canonical_nodes=1)
        for _ in range(2):
            self.assertEqual(sorted(sample["key"] for sample in dataset), sorted(row["key"].decode() for row in rows))
        self.assertEqual(numpy.load(out + "/empty.npy").shape, (77, 64))


if __name__ == "__main__":
    streaming.base.util.clean_stale_shared_memory()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
