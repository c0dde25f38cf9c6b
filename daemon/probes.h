/* probes.h - runs the health probes, one after the other, each in a child that can be killed.
 *
 * Ownership: part of the Manager.
 * Units:     *_usec microseconds.
 * Errors:    a probe that cannot run is an answer (verdict.h), not an error.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/config.h"
#include "health/verdict.h"

#include <sys/types.h>
#include <systemd/sd-event.h>

typedef struct Manager Manager;

typedef struct Probes {
    ProbeAnswer answers[PROBES_MAX];
    char evidence[PROBES_MAX][PROBE_TEXT_MAX + 32];
    size_t current; /* the one that runs, or is next */
    pid_t pid;      /* 0: none runs */
    int pidfd, output;
    bool killed;
    sd_event_source *timer, *exit_source;
} Probes;

void probes_start(Manager *m); /* the first round at once */
void probes_clear(Probes *probes);

/* sdtraind --probe NAME: runs it here and prints what it found. */
int probes_run_one(const Config *config, const char *name, Error *err);
