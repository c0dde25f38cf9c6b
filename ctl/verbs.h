/* verbs.h - sdctl's verbs: one file each, one table in sdctl.c.
 *
 * Ownership: verbs borrow their Arguments.
 * Units:     none.
 * Errors:    a verb returns an exit code (CtlExit), after it has said on standard error what was
 *            wrong.
 * Threads:   the main thread.
 */
#pragma once

typedef struct Arguments Arguments;

typedef enum CtlExit {
    CTL_DONE = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NOT_FOUND = 3,
    CTL_TIMED_OUT = 4,
    CTL_UNREACHABLE = 5,
} CtlExit;

typedef struct CtlVerb {
    const char *noun; /* "job"; NULL for a verb that stands alone */
    const char *name;
    int (*run)(const Arguments *a);
    const char *operand;   /* "NAME"; NULL: it takes none */
    unsigned takes, needs; /* options, of arguments.h; what it needs it takes too */
    const char *about;
} CtlVerb;

extern const CtlVerb ctl_verbs[];
extern const int ctl_n_verbs;

int job_start_again(const Arguments *a);
int job_start(const Arguments *a);
int job_status(const Arguments *a);
int job_list(const Arguments *a);
int job_wait(const Arguments *a);
int job_events(const Arguments *a);
int job_logs(const Arguments *a);
int job_resize(const Arguments *a);
int job_stop(const Arguments *a);
int job_delete(const Arguments *a);
int job_checkpoint(const Arguments *a);
int job_recover(const Arguments *a);
int job_report(const Arguments *a);
int job_sample(const Arguments *a);
int job_export(const Arguments *a);

int node_list(const Arguments *a);
int node_status(const Arguments *a);
int node_cordon(const Arguments *a);
int node_drain(const Arguments *a);
int node_uncordon(const Arguments *a);
int node_forget(const Arguments *a);
int node_check(const Arguments *a);

int cluster_status(const Arguments *a);
int cluster_what_if(const Arguments *a);

int alerts_list(const Arguments *a);
int alerts_test(const Arguments *a);

int dev_up(const Arguments *a);
int dev_down(const Arguments *a);
int dev_status(const Arguments *a);
int dev_kill_node(const Arguments *a);
int dev_start_node(const Arguments *a);

int simulate(const Arguments *a);
int completion(const Arguments *a);
