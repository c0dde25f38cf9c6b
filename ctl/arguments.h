/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.h - the words of a command line; parsing, help and completion follow from the tables of options.
 *
 * Folder:    defaults of the headers here: Units: none. Errors: none. Threads: the main thread.
 * Ownership: Arguments borrow argv.
 * Units:     timeout in seconds, *_usec microseconds.
 * Errors:    arguments_parse() prints the error and how to get help, and returns CTL_USAGE; it returns CTL_DONE after
 *            --help.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/verbs.h"

#include <stdio.h>

enum { ARGUMENT_OWN_MAX = 1024 };

struct Arguments {
    const CtlVerb *verb;
    ClientOptions client;
    bool json;
    const char *dir;     /* --dir of `sdctl dev`; NULL: not given */
    const char *operand; /* NULL: not given, because the operand is optional: "[NAME]" */
    const char *second;  /* the second operand; NULL: not given */
    union {              /* the values of the verb's own options, which arguments_own() returns */
        char bytes[ARGUMENT_OWN_MAX];
        max_align_t align;
    } own;
};

/* Returns the struct of the verb's own options. */
const void *arguments_own(const Arguments *a);

/* Parses the words after the verb, which is argv[0]. Returns -1 when the verb may run, else the exit code. */
int arguments_parse(const CtlVerb *verb, int argc, char **argv, Arguments *ret);

/* Prints "sdctl job start -f FILE [--watch]". */
void arguments_print_usage(FILE *to, const CtlVerb *verb);
/* Prints the options of a verb for completion, one per line: "--watch<TAB>show it live, until the job ends". */
void arguments_print_options(FILE *to, const CtlVerb *verb);
/* Returns the kind of value of an option ("FILE", "json|text"), "" if it has no value, or NULL if the verb does not
 * have the option. word is "--file" or "-f". */
const char *arguments_value_of(const CtlVerb *verb, const char *word);

/* Prints "sdctl: job start: <the error>; see sdctl job start --help"; returns CTL_USAGE. */
int arguments_refuse(const CtlVerb *verb, const char *format, ...) _printf_(2, 3);
