/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - named clusters in files, so that users need not export addresses, certificates and user names.
 *
 * A user's file is ~/.config/sdtrain/sdctl.json (below XDG_CONFIG_HOME if that is set), and the machine's file is
 * /etc/sdtrain/sdctl.json. A context in the user's file hides the context of the same name in the machine's file. A
 * context sets the values of SDTRAIN_ETCD, SDTRAIN_ETCD_* and SDTRAIN_CLUSTER; sdctl copies them into its environment.
 *
 * A context may name a password and a private key. So a user who can write to the file can make sdctl send them to any
 * server.
 *
 * Ownership: contexts_read() fills the caller's Contexts.
 * Units:     none.
 * Errors:    -EINVAL with "<file>: <key>: <what is wrong>"; -EPERM with "wrong rights"; -ENOENT: no such context.
 * Threads:   the main thread, before other threads exist.
 */
#pragma once

#include "ctl/client.h"

#include <limits.h>

enum { CONTEXTS_MAX = 64, CONTEXT_KEYS = 8, CONTEXT_VALUE_MAX = 512 };

typedef struct ContextKey {
    const char *name;     /* the key in a context, such as "etcd_ca" */
    const char *variable; /* the environment variable, such as "SDTRAIN_ETCD_CA" */
    bool is_file;         /* the value is a path, relative to the context's file */
    bool is_secret;       /* other users must not be able to read the file at this path */
} ContextKey;

extern const ContextKey context_keys[CONTEXT_KEYS];

typedef struct Context {
    char name[CLUSTER_NAME_MAX + 1];
    char file[PATH_MAX];
    char values[CONTEXT_KEYS][CONTEXT_VALUE_MAX]; /* indexed like context_keys; empty: not set */
} Context;

typedef struct Contexts {
    Context *all; /* sorted by name */
    size_t n;
    char chosen[CLUSTER_NAME_MAX + 1]; /* value of "context" in the files; empty: none */
    char chosen_by[PATH_MAX];          /* path of the file that has the value in `chosen` */
    /* Path of the user's file, which may not exist; empty: no home folder. */
    char own_file[PATH_MAX];
    char system_file[PATH_MAX]; /* $SDTRAIN_CONTEXTS, else /etc/sdtrain/sdctl.json */
} Contexts;

int contexts_read(Contexts *ret, Error *err);
void contexts_clear(Contexts *contexts);

/* Returns the context of that name, or NULL with an error that lists the existing contexts. */
const Context *contexts_find(const Contexts *contexts, const char *name, Error *err);

/* Returns the name of the context in use, or NULL; *ret_by names the origin: "--context", "SDTRAIN_CONTEXT" or the path
 * of a file. If --etcd or SDTRAIN_ETCD names an etcd, only --context can select a context. */
const char *contexts_in_use(const Contexts *contexts, const ClientOptions *options,
                            const char **ret_by);

/* Copies the context in use into this process's environment. If --etcd or SDTRAIN_ETCD is given without --context, no
 * file is read. A context that --context names overrides variables that are set; any other context sets only variables
 * that are unset. */
int context_apply(const ClientOptions *options, Error *err);
