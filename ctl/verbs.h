/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the table of sdctl's verbs (sdctl.c) and their exit codes; each folder below ctl has a verbs.h too.
 *
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb returns an exit code (CtlExit), after it has printed the error on standard error.
 */
#pragma once

#include "ctl/option.h"

typedef struct Arguments Arguments;

typedef enum CtlExit {
    CTL_DONE = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NOT_FOUND = 3,
    CTL_TIMED_OUT = 4,
    CTL_UNREACHABLE = 5,
} CtlExit;

/* Options shared by several verbs. */
typedef enum CtlCommon {
    COMMON_CLUSTER = 1 << 0, /* --etcd, --cluster, --context */
    COMMON_JSON = 1 << 1,    /* -o json|text */
    COMMON_DIR = 1 << 2,     /* --dir FOLDER */
} CtlCommon;

typedef struct CtlVerb {
    const char *noun; /* "job"; NULL: the verb has no noun */
    const char *name;
    int (*run)(const Arguments *a);
    const char *operand;       /* the operand as usage shows it: "NAME"; NULL: none */
    unsigned common;           /* set of CtlCommon */
    const CtlOptions *options; /* the verb's own options; NULL: none */
    const char *about;         /* one sentence for --help */
} CtlVerb;

extern const CtlVerb ctl_verbs[];
extern const int ctl_n_verbs;

/* Verbs without a noun. */
extern const CtlOptions doctor_options, top_options, simulate_options;
int doctor(const Arguments *a);
int top(const Arguments *a);
int simulate(const Arguments *a);
int completion(const Arguments *a);

/* Implements `sdctl complete WORD... CURRENT`, which the shells' completion scripts call. Prints the candidates for the
 * last word, one per line: "word<TAB>meaning". A line "<files>" or "<folders>" makes the shell complete names of
 * files or folders. */
int completion_words(int n, char **words);
