/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ctl.h - runs sdctl as a user does, against a real etcd with records that a test puts.
 *
 * Ownership: ctl_lab_start() gives the caller a CtlLab; ctl_lab_stop() accepts NULL. The output that ctl_run() captured
 *            belongs to the lab until the next ctl_run().
 * Units:     *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none: an error ends the test.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <jansson.h>

typedef struct CtlLab {
    TestingEtcd *server; /* NULL: the lab has no etcd */
    sd_event *event;
    Etcd *etcd;
    int64_t revision; /* revision of the last put or removal */
    char folder[64];  /* folder for this test's files */
    char *out, *err;  /* output of the last ctl_run() */
    pid_t pid;        /* the process that ctl_begin() has started */
    FILE *out_file, *err_file;
} CtlLab;

CtlLab *ctl_lab_start(bool with_etcd);
CtlLab *ctl_lab_stop(CtlLab *lab);
/* Setup and teardown of tests whose state is a CtlLab with etcd. */
int ctl_setup(void **state);
int ctl_teardown(void **state);

/* Runs sdctl with the words of the line (a part in '...' is one word) and returns its exit code. */
int ctl_run(CtlLab *lab, const char *line, ...) _printf_(2, 3);
/* Works as ctl_run(), but standard output is a terminal of this many columns. */
int ctl_run_on_terminal(CtlLab *lab, int columns, const char *line);
/* The two halves of ctl_run(), for a test that acts while sdctl runs. */
void ctl_begin(CtlLab *lab, const char *line, ...) _printf_(2, 3);
int ctl_finish(CtlLab *lab);
int ctl_finish_by(CtlLab *lab); /* returns the signal that ended sdctl */
/* Waits until sdctl has printed something. */
void ctl_wait_said(CtlLab *lab);
/* Sends SIGINT after sdctl has printed something. Returns the signal that ended sdctl, or 0. */
int ctl_interrupt(CtlLab *lab);
/* Parses the last output as JSON. The caller gets a reference. */
json_t *ctl_json(const CtlLab *lab);

/* Puts a record of cluster "lab" and frees text. */
void ctl_put(CtlLab *lab, KeyKind kind, const char *name, char *text);
void ctl_put_text(CtlLab *lab, KeyKind kind, const char *name, const char *text);
void ctl_remove(CtlLab *lab, KeyKind kind, const char *name);
/* Returns the record's value, or NULL. The caller frees it. */
char *ctl_get(CtlLab *lab, KeyKind kind, const char *name);
/* Waits for any record of this kind. Returns its value, which the caller frees, and stores its name. */
char *ctl_wait_any(CtlLab *lab, KeyKind kind, char *ret_name, size_t size);

#define CTL_PUT(lab, kind, name, prefix, ...)                                                      \
    do {                                                                                           \
        char *_text = NULL;                                                                        \
        _text = prefix##_encode(&(__VA_ARGS__), NULL);                                             \
        ctl_put(lab, kind, name, _text);                                                           \
    } while (0)

/* Writes the data and model of a small job into the lab's folder. Returns the job file's text, which the caller
 * frees. */
char *ctl_job_text(CtlLab *lab, const char *name);
void ctl_write(CtlLab *lab, const char *name, const char *text);

/* Puts the records of a running job: spec, desired, a world of two ranks on n1 and n2, at step 12 of 100. */
void ctl_put_running_job(CtlLab *lab, const char *name);
void ctl_put_phase(CtlLab *lab, const char *name, JobPhase phase, const char *reason);

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("\"%s\" is not in:\n%s", (part), (text));                                     \
    } while (0)
/* Puts an incident "trainer-died" of the job. */
void ctl_put_incident(CtlLab *lab, const char *job, IncidentState state);
/* Returns a field of the object, borrowed. A missing field fails the test. */
json_t *ctl_at(json_t *object, const char *key);
