/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ctl.h - sdctl run as a person runs it, against a real etcd whose records a test puts.
 *
 * Ownership: ctl_lab_start() gives the caller a CtlLab; ctl_lab_stop() accepts NULL. The output
 *            that ctl_run() captured belongs to the lab until the next ctl_run().
 * Units:     *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <jansson.h>

typedef struct CtlLab {
    TestingEtcd *server; /* NULL: none */
    sd_event *event;
    Etcd *etcd;
    int64_t revision; /* of the last record that was put */
    char folder[64];  /* of this test's files */
    char *out, *err;  /* of the last ctl_run() */
    pid_t pid;        /* of ctl_begin() */
    FILE *out_file, *err_file;
} CtlLab;

CtlLab *ctl_lab_start(bool with_etcd);
CtlLab *ctl_lab_stop(CtlLab *lab);
/* The setup and teardown of tests whose state is a lab with etcd. */
int ctl_setup(void **state);
int ctl_teardown(void **state);

/* Runs sdctl with the words of the line (parts in '...' are one word) and gives its exit code. */
int ctl_run(CtlLab *lab, const char *line, ...) _printf_(2, 3);
/* Works as ctl_run(), with a terminal of that many columns as standard output. */
int ctl_run_on_terminal(CtlLab *lab, int columns, const char *line);
/* Both halves of ctl_run(), for a test that acts while sdctl runs. */
void ctl_begin(CtlLab *lab, const char *line, ...) _printf_(2, 3);
int ctl_finish(CtlLab *lab);
int ctl_finish_by(CtlLab *lab); /* the signal that ends it, in the place of an exit code */
/* Waits until it has printed something. */
void ctl_wait_said(CtlLab *lab);
/* Sends it SIGINT once it has said something; the signal that ended it, or 0. */
int ctl_interrupt(CtlLab *lab);
/* The last output as JSON; the caller drops it. */
json_t *ctl_json(const CtlLab *lab);

/* Puts a record of cluster "lab"; text is freed. */
void ctl_put(CtlLab *lab, KeyKind kind, const char *name, char *text);
void ctl_put_text(CtlLab *lab, KeyKind kind, const char *name, const char *text);
void ctl_remove(CtlLab *lab, KeyKind kind, const char *name);
/* The value, or NULL; free()d by the caller. */
char *ctl_get(CtlLab *lab, KeyKind kind, const char *name);
/* Waits until there is a record of the kind; its value, free()d by the caller, and its name. */
char *ctl_wait_any(CtlLab *lab, KeyKind kind, char *ret_name, size_t size);

#define CTL_PUT(lab, kind, name, prefix, ...)                                                      \
    do {                                                                                           \
        char *_text = NULL;                                                                        \
        _text = prefix##_encode(&(__VA_ARGS__), NULL);                                             \
        ctl_put(lab, kind, name, _text);                                                           \
    } while (0)

/* A small job file with its data and model beside it in the lab's folder; the job's text, free()d
 * by the caller. */
char *ctl_job_text(CtlLab *lab, const char *name);
void ctl_write(CtlLab *lab, const char *name, const char *text);

/* spec, desired, world of two ranks on n1 and n2, phase running at step 12 of 100. */
void ctl_put_running_job(CtlLab *lab, const char *name);
void ctl_put_phase(CtlLab *lab, const char *name, JobPhase phase, const char *reason);

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("\"%s\" is not in:\n%s", (part), (text));                                     \
    } while (0)
/* An incident "trainer-died" of the job. */
void ctl_put_incident(CtlLab *lab, const char *job, IncidentState state);
/* A field that must be there; borrowed. */
json_t *ctl_at(json_t *object, const char *key);
