/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - named clusters in files, so that nobody has to export addresses, certificates and users.
 *
 * ~/.config/sdtrain/sdctl.json (below XDG_CONFIG_HOME where that is set) is a person's, /etc/sdtrain/sdctl.json the
 * machine's; a context in the first hides one of its name in the second. A context says what SDTRAIN_ETCD,
 * SDTRAIN_ETCD_* and SDTRAIN_CLUSTER say, and is taken over as such.
 *
 * A context may name a password and a private key, so who may write to the file may have sdctl send them anywhere.
 *
 * Ownership: contexts_read() fills the caller's Contexts.
 * Units:     none.
 * Errors:    -EINVAL with "<file>: <key>: <what is wrong>"; -EPERM with "wrong rights"; -ENOENT: no such context.
 * Threads:   the main thread, before there is another.
 */
#pragma once

#include "ctl/client.h"

#include <limits.h>

enum { CONTEXTS_MAX = 64, CONTEXT_KEYS = 8, CONTEXT_VALUE_MAX = 512 };

typedef struct ContextKey {
    const char *name;     /* "etcd_ca" */
    const char *variable; /* "SDTRAIN_ETCD_CA" */
    bool is_file;         /* a path, relative to the context's file */
    bool is_secret;       /* others must not be able to read that file */
} ContextKey;

extern const ContextKey context_keys[CONTEXT_KEYS];

typedef struct Context {
    char name[CLUSTER_NAME_MAX + 1];
    char file[PATH_MAX];
    char values[CONTEXT_KEYS][CONTEXT_VALUE_MAX]; /* of context_keys; empty: not said */
} Context;

typedef struct Contexts {
    Context *all; /* sorted by name */
    size_t n;
    char chosen[CLUSTER_NAME_MAX + 1]; /* the files' "context"; empty: none */
    char chosen_by[PATH_MAX];          /* the file that says so */
    char own_file[PATH_MAX];           /* where a person's file is, or would be; empty: no home */
    char system_file[PATH_MAX];        /* SDTRAIN_CONTEXTS, else /etc/sdtrain/sdctl.json */
} Contexts;

int contexts_read(Contexts *ret, Error *err);
void contexts_clear(Contexts *contexts);

/* Returns the context of that name, or NULL with an error that lists those that there are. */
const Context *contexts_find(const Contexts *contexts, const char *name, Error *err);

/* Returns the name of the context that is in use, or NULL; *ret_by is what says so: "--context", "SDTRAIN_CONTEXT" or
 * the path of a file. None is in use where --etcd or SDTRAIN_ETCD names an etcd, unless --context names one. */
const char *contexts_in_use(const Contexts *contexts, const ClientOptions *options,
                            const char **ret_by);

/* Finds the context in use and puts it into this process's environment. Where an etcd is named otherwise, no file is
 * read. The context that --context names wins over the environment; others fill what the environment leaves out. */
int context_apply(const ClientOptions *options, Error *err);
