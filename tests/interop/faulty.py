# SPDX-License-Identifier: Apache-2.0
"""Runs a program of sdtrain's client, with a fault: before a step computes, a rank for which the folder has a file "memory-RANK" asks
for more memory than there is.

    faulty.py PROGRAM [ARGUMENT...]
"""
import os
import runpy
import sys

import sdtrain

name_stage = sdtrain.stage


def stage(name):
    name_stage(name)
    mark = "memory-" + os.environ["RANK"]
    if name == "compute" and os.path.exists(mark):
        os.unlink(mark)
        import torch
        torch.empty(1 << 50)


sdtrain.stage = stage
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
