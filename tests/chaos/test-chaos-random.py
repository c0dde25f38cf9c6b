#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Schedules drawn from a seed, of faults of nodes, controllers and members of etcd. --full: 50 of them; seed-N runs
one."""
from machines import Machines
from scenario import full, main
from schedules import Schedules

SCHEDULES = 50 if full() else 10


class Random(Schedules):
    group = "random"

    def test_schedules(self):
        self.begin(Machines(self.lab, members=3))
        self.play_seeds(range(1, SCHEDULES + 1))
        self.finish()


if __name__ == "__main__":
    main()
