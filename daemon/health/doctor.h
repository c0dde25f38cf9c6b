/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - answers requests of kind "doctor": runs `sdtrainer doctor` and puts what it says into health/<node>.
 *
 * sdtraind may reach a store that a rank could not: it is another program, with other limits and another environment.
 * So the trainer itself looks, in a child that is killed when it takes too long. sdtraind does not read its report.
 *
 * Ownership: a value; doctor_clear() kills the child. Borrows all its needs, which outlive it.
 * Units:     none.
 * Errors:    are reports: {"error": "..."}.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/config/config.h"
#include "daemon/loop/timer.h"

#include <sys/types.h>

/* sdtrainer gives stores 8 s, and ways to others 6 s. */
enum { DOCTOR_SEC = 16 };

typedef struct DoctorNeeds {
    const DaemonConfig *config; /* changes at a reload */
    const Timers *timers;
    char *const *environment; /* of this process; the trainer's is made from it */
    const int *trainer;    /* the program, opened; negative: the path in the settings is executed */
    const char *cgroups;   /* folder of the ranks' cgroups; empty: none */
    uint64_t timeout_usec; /* of the child; 0: DOCTOR_SEC */

    void *userdata; /* of the call below */
    void (*told)(void *userdata, const char *request, const char *report);
} DoctorNeeds;

typedef struct Doctor {
    DoctorNeeds needs;
    RequestRecord request; /* of the child */
    RequestRecord next;    /* came meanwhile, the newest; id empty: none */
    pid_t pid;             /* 0: no child. One that survives SIGKILL keeps its place */
    int pidfd, output;
    bool killed; /* the child took too long */
    sd_event_source *exit_source;
    Timer timer;
} Doctor;

void doctor_init(Doctor *d, const DoctorNeeds *needs);
void doctor_clear(Doctor *d);
/* The request is copied. One that comes while another is under way follows it, but for a newer one that takes its
 * place. */
void doctor_request(Doctor *d, const RequestRecord *request);
/* Whether that process is the child. */
bool doctor_owns(const Doctor *d, pid_t pid);
