/* SPDX-License-Identifier: Apache-2.0 */
/* loop-scripts.h - small scripts of timers whose order sd-event defines. They are run on libsystemd and on the model of
 * sd-event.
 *
 * Units: none. Errors: asserts. Threads: one.
 * Ownership: a script frees what it makes.
 */
#pragma once

#include "base/macro.h"

#include <systemd/sd-event.h>

typedef struct LoopKind {
    void (*run)(
        sd_event *
            event); /* waits for one callback and runs it, or finishes a loop that is told to exit */
    bool (*idle)(sd_event *event); /* returns whether nothing is due now */
    int (*descriptor)(void);       /* makes a descriptor that is not ready */
    void (*set_ready)(sd_event *event, int fd, bool ready);
    void (*close)(int fd);
} LoopKind;

/* Runs all scripts. Each script collects the names of its callbacks in the order in which the
 * callbacks ran, and compares the names with the expected text. */
void loop_scripts_run(const LoopKind *kind);
