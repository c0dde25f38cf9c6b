/* SPDX-License-Identifier: Apache-2.0 */
/* loop-scripts.h - little scripts of timers whose order sd-event determines: run on libsystemd and on the model.
 *
 * Ownership: a script frees what it makes.
 * Units:     none.
 * Errors:    asserts.
 * Threads:   one.
 */
#pragma once

#include "base/macro.h"

#include <systemd/sd-event.h>

typedef struct LoopKind {
    void (*run)(
        sd_event *
            event); /* waits for one callback and runs it, or finishes a loop that is told to exit */
    bool (*idle)(sd_event *event); /* nothing is due now */
    int (*descriptor)(void);       /* one that has nothing to say */
    void (*set_ready)(sd_event *event, int fd, bool ready);
    void (*close)(int fd);
} LoopKind;

/* Each adds its name and what ran, in order, to a text and compares it with what must be. */
void loop_scripts_run(const LoopKind *kind);
