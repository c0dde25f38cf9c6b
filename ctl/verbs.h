/* verbs.h - sdctl's verbs: one file each, one table in sdctl.c.
 *
 * Ownership: verbs borrow argv.
 * Units:     none.
 * Errors:    a verb returns an exit code (CtlExit), after it has said on standard error what was
 * wrong. Threads:   the main thread.
 */
#pragma once

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
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
    const char *arguments;             /* "NAME [--watch]" */
    const char *about;
} CtlVerb;

extern const CtlVerb ctl_verbs[];
extern const int ctl_n_verbs;

/* Prints "usage: sdctl NOUN VERB ARGUMENTS", about, and what common options mean. */
void ctl_help(const char *noun, const char *name);

int job_start(int argc, char **argv);
int job_status(int argc, char **argv);
int job_list(int argc, char **argv);
int job_wait(int argc, char **argv);
int job_resize(int argc, char **argv);
int job_stop(int argc, char **argv);
int job_delete(int argc, char **argv);

int dev_up(int argc, char **argv);
int dev_down(int argc, char **argv);
int dev_status(int argc, char **argv);
int dev_kill_node(int argc, char **argv);
int dev_start_node(int argc, char **argv);
