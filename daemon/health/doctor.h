/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - answers requests of kind "doctor": runs `sdtrainer doctor`, whose report is written into health/<node>.
 *
 * sdtraind may reach a store that a rank cannot reach, because sdtraind is another program with other limits and
 * another environment. So the trainer program itself does the checks, in a child that is killed after a timeout.
 * sdtraind does not interpret the report.
 *
 * Ownership: a value; doctor_clear() kills the child. Borrows all its needs, which outlive it.
 * Units:     none.
 * Errors:    are reports: {"error": "..."}.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/config/config.h"
#include "daemon/loop/timer.h"

#include <sys/types.h>

/* The child's timeout in seconds. `sdtrainer doctor` needs less time: it waits at most 8 s for stores, and at most 6 s
 * for peers. */
enum { DOCTOR_SEC = 16 };

typedef struct DoctorNeeds {
    const DaemonConfig *config; /* its values change at a reload */
    const Timers *timers;
    char *const *environment; /* environment of this process, from which the trainer's is made */
    const int *trainer;       /* open fd of the trainer program; negative: its path is executed */
    const char *cgroups;      /* folder of the ranks' cgroups; empty: none */
    uint64_t timeout_usec;    /* timeout of the child; 0: DOCTOR_SEC */

    void *userdata; /* passed to the callback below */
    void (*told)(void *userdata, const char *request, const char *report);
} DoctorNeeds;

typedef struct Doctor {
    DoctorNeeds needs;
    RequestRecord request; /* the request that the child answers */
    RequestRecord next;    /* the newest request that came while the child ran; id empty: none */
    pid_t pid;             /* 0: no child. A killed child keeps its pid here until it has exited */
    int pidfd, output;
    bool killed; /* the child took too long and was killed */
    sd_event_source *exit_source;
    Timer timer;
} Doctor;

void doctor_init(Doctor *d, const DoctorNeeds *needs);
void doctor_clear(Doctor *d);
/* Copies the request. If a child still answers an earlier request, the new request is answered after it. Only one
 * request waits: a newer request replaces the request that waits. */
void doctor_request(Doctor *d, const RequestRecord *request);
/* Returns whether pid is the child. */
bool doctor_owns(const Doctor *d, pid_t pid);
