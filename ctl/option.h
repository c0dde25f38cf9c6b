/* SPDX-License-Identifier: Apache-2.0 */
/* option.h - the options of one verb: a struct of their values, and a table that describes how to parse each option.
 *
 * A verb's file has both, and names the struct for the rows:
 *     typedef struct WaitOptions { const char *wanted; double timeout_sec; } WaitOptions;
 *     #define OPTIONS_STRUCT WaitOptions
 *     static const CtlOption options[] = {
 *         {"for", 0, "PHASE|step=N", "what to wait for", TAKES(TEXT, wanted), .is_needed = true},
 *         OPTION_TIMEOUT,
 *     };
 *     const CtlOptions job_wait_options = CTL_OPTIONS(options, .timeout_sec = -1);
 * The options that most verbs accept (--etcd, -o json, --dir) are in arguments.c.
 *
 * Ownership: tables are static; values borrow argv.
 * Units:     seconds; *_usec microseconds.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

#include <stddef.h>

enum {
    OPTION_TEXTS_MAX = 64,
    OPTION_NO_PRIORITY = INT32_MIN,
};

/* The values of an option that may be given several times. */
typedef struct OptionTexts {
    const char *items[OPTION_TEXTS_MAX];
    int n;
} OptionTexts;

/* How an option's value is parsed into its field. */
typedef enum CtlOptionKind {
    TAKES_NOTHING, /* the field is a bool */
    TAKES_TEXT,    /* the field is a const char *; NULL: not given */
    TAKES_TEXTS,   /* the field is an OptionTexts: the option may be given several times */
    TAKES_WHOLE,   /* the field is an int in min..max */
    TAKES_SECONDS, /* the field is a double */
    TAKES_TIME,    /* the field is a uint64_t, in realtime; 0: not given */
    TAKES_FORMAT,  /* the field is a bool; true: JSON */
} CtlOptionKind;

typedef struct CtlOption {
    const char *name;  /* without "--" */
    char letter;       /* 'f' for -f; '\0': the option has no letter */
    const char *value; /* kind of value, as "FILE"; NULL: the option has no value */
    const char *about;
    CtlOptionKind kind;
    size_t offset;      /* offset of the option's field in the struct */
    int min, max;       /* for TAKES_WHOLE: bounds of the value */
    const char *wanted; /* for TAKES_WHOLE: describes a good value, for errors */
    bool is_needed;
} CtlOption;

typedef struct CtlOptions {
    const CtlOption *of;
    size_t n;
    const void *defaults; /* a struct of `size` bytes: the values of options that are not given */
    size_t size;          /* at most ARGUMENT_OWN_MAX */
} CtlOptions;

#define CTL_OPTIONS(table_, ...)                                                                   \
    {                                                                                              \
        .of = table_, .n = ELEMENTSOF(table_), .defaults = &(const OPTIONS_STRUCT){__VA_ARGS__},   \
        .size = sizeof(OPTIONS_STRUCT)                                                             \
    }

#define TAKES(kind_, field) .kind = TAKES_##kind_, .offset = offsetof(OPTIONS_STRUCT, field)
#define TAKES_NUMBER(field, min_, max_, wanted_)                                                   \
    TAKES(WHOLE, field), .min = min_, .max = max_, .wanted = wanted_

/* Rows for options of several verbs. The verb's struct needs a field with the name that the macro uses. */
#define OPTION_TIMEOUT                                                                             \
    {                                                                                              \
        "timeout", 0, "SECONDS", "give up then, with exit code 4", TAKES(SECONDS, timeout_sec)     \
    }
#define OPTION_OUT(...)                                                                            \
    {                                                                                              \
        "out", 0, "FILE", "where to write", TAKES(TEXT, out), __VA_ARGS__                          \
    }
#define OPTION_MODEL                                                                               \
    {                                                                                              \
        "model", 0, "FOLDER", "a diffusers folder, path or URI: VAE, text encoder, tokenizer",     \
            TAKES(TEXT, model)                                                                     \
    }
#define OPTION_WAIT                                                                                \
    {                                                                                              \
        "wait", 0, NULL, "until it is done", TAKES(NOTHING, wait)                                  \
    }
#define OPTION_WATCH                                                                               \
    {                                                                                              \
        "watch", 0, NULL, "show it live, until the job ends", TAKES(NOTHING, watch)                \
    }
#define OPTION_FOLLOW                                                                              \
    {                                                                                              \
        "follow", 'f', NULL, "go on with what is added, until the job ends",                       \
            TAKES(NOTHING, follow)                                                                 \
    }
