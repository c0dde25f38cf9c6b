/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.h - every option of every verb, named once; parsing and help follow from the table.
 *
 * Ownership: Arguments borrow argv.
 * Units:     timeout in seconds, *_usec microseconds.
 * Errors:    arguments_parse() tells the error and how to get help, and returns CTL_USAGE; CTL_DONE
 *            after --help.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/verbs.h"

#include <stdio.h>

typedef enum Option {
    OPTION_CLUSTER = 1 << 0,     /* --etcd, --cluster */
    OPTION_JSON = 1 << 1,        /* -o json|text */
    OPTION_FILE = 1 << 2,        /* -f FILE */
    OPTION_WATCH = 1 << 3,       /* --watch */
    OPTION_RESUME = 1 << 4,      /* --resume URI */
    OPTION_WORLD = 1 << 5,       /* --world N */
    OPTION_FOR = 1 << 6,         /* --for PHASE|step=N */
    OPTION_TIMEOUT = 1 << 7,     /* --timeout SECONDS */
    OPTION_RANK = 1 << 8,        /* --rank R */
    OPTION_GENERATION = 1 << 9,  /* --generation G */
    OPTION_FOLLOW = 1 << 10,     /* -f */
    OPTION_OUT = 1 << 11,        /* --out FILE */
    OPTION_EMA = 1 << 12,        /* --ema */
    OPTION_REASON = 1 << 13,     /* --reason TEXT */
    OPTION_DIR = 1 << 14,        /* --dir FOLDER */
    OPTION_DEV_COUNTS = 1 << 15, /* --nodes, --slots, --controllers */
    OPTION_TIMES = 1 << 16,      /* --from, --until TIME */
    OPTION_VERBOSE = 1 << 17,    /* --verbose */
    OPTION_WHAT_IF = 1 << 18,    /* --lose, --cordon, --drain NODE,... */
    OPTION_MODEL = 1 << 19,      /* --model FOLDER */
    OPTION_SINK = 1 << 20,       /* --sink NAME */
    OPTION_FORCE = 1 << 21,      /* --force */
    OPTION_CLEAR = 1 << 22,      /* --clear */
    OPTION_DRAW = 1 << 23,       /* --caption TEXT, --samples N, --seed N, --pictures FILE */
    OPTION_QUEUE = 1 << 24,      /* --priority N, --queue */
    OPTION_PIPELINE = 1 << 25,   /* --pipeline FOLDER */
    OPTION_FORMAT = 1 << 26,     /* -o jsonl|csv|tensorboard */
    OPTION_ALL = 1 << 27,        /* --all */
    OPTION_ONCE = 1 << 28,       /* --once */
    OPTION_WAIT = 1 << 29,       /* --wait */
    OPTION_EDIT = 1 << 30,       /* --set KEY=VALUE, --name NAME, --dry-run */
    OPTION_DOCTOR = 1ULL << 31,  /* doctor's -f FILE, --timeout SECONDS */
    OPTION_BESIDE = 1ULL << 32,  /* --alone DIGEST, --grid FILE, --pictures FILE */
} Option;

enum {
    ARGUMENT_NODES_MAX = 64,
    ARGUMENT_CAPTIONS_MAX = 64,
    ARGUMENT_SAMPLES_MAX = 400, /* as sdtrainer sample */
    ARGUMENT_NO_PRIORITY = INT32_MIN,
};

/* What an option that may be given again was given. */
typedef struct ArgumentTexts {
    const char *items[ARGUMENT_CAPTIONS_MAX];
    int n;
} ArgumentTexts;

struct Arguments {
    const CtlVerb *verb;
    ClientOptions client;
    bool json, watch, follow, ema, verbose, force, clear, queue, all, once, wait, dry_run;
    int priority; /* ARGUMENT_NO_PRIORITY: not given */
    const char *file, *resume, *wanted, *out, *reason, *dir, *sink, *alerts;
    const char *model, *pipeline, *format, *alone, *grid, *pictures;
    const char *name; /* --name */
    ArgumentTexts captions, sets;
    int samples, seed;                 /* -1: not given */
    int world, rank, generation;       /* -1: not given */
    int nodes, slots, controllers;     /* -1: not given */
    double timeout_sec;                /* < 0: not given */
    uint64_t from_usec, until_usec;    /* realtime; 0: not given */
    const char *lose, *cordon, *drain; /* node names, joined by ','; NULL: not given */
    const char *operand;               /* NULL: not given, which only "[NAME]" may be */
    const char *second;                /* the second operand; NULL: not given */
};

/* Parses the words after the verb, which is argv[0]. Returns -1 when the verb may run, else the exit code. */
int arguments_parse(const CtlVerb *verb, int argc, char **argv, Arguments *ret);

/* Prints "sdctl job start -f FILE [--watch]". */
void arguments_print_usage(FILE *to, const CtlVerb *verb);
/* Prints the options of a verb for completion, a line each: "--watch<TAB>show it live, until the job ends". */
void arguments_print_options(FILE *to, const CtlVerb *verb);
/* Returns what an option of the verb takes ("FILE", "json|text"); "": nothing; NULL: there is no such option. word is
 * "--file" or "-f". */
const char *arguments_value_of(const CtlVerb *verb, const char *word);

/* Prints "sdctl: job start: <the error>; see sdctl job start --help"; returns CTL_USAGE. */
int arguments_refuse(const CtlVerb *verb, const char *format, ...) _printf_(2, 3);
