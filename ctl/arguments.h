/* arguments.h - the options that verbs share, parsed once.
 *
 * Ownership: borrows argv.
 * Units:     timeout in seconds.
 * Errors:    arguments_parse() prints what is wrong and how to get help, and gives CTL_USAGE;
 * CTL_DONE after --help. Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"

enum { OPERANDS_MAX = 4 };

/* Which options a verb takes besides --etcd, --cluster and --help. */
typedef enum ArgumentSet {
    TAKES_JSON = 1 << 0,    /* -o json|text */
    TAKES_FILE = 1 << 1,    /* -f FILE */
    TAKES_WATCH = 1 << 2,   /* --watch */
    TAKES_RESUME = 1 << 3,  /* --resume URI */
    TAKES_WORLD = 1 << 4,   /* --world N */
    TAKES_FOR = 1 << 5,     /* --for PHASE|step=N */
    TAKES_TIMEOUT = 1 << 6, /* --timeout SECONDS */
    TAKES_RANK = 1 << 7,    /* --rank R */
    TAKES_OUT = 1 << 8,     /* --out FILE */
    TAKES_REASON = 1 << 9,  /* --reason TEXT */
} ArgumentSet;

typedef struct Arguments {
    ClientOptions client;
    bool json, watch;
    const char *file, *resume, *wanted, *out, *reason;
    int world, rank;    /* -1: not given */
    double timeout_sec; /* < 0: not given */
    const char *operands[OPERANDS_MAX];
    int n_operands;
} Arguments;

/* -1 when the verb may go on; else the exit code to leave with. */
int arguments_parse(int argc, char **argv, const char *noun, unsigned set, int n_operands,
                    Arguments *ret);
