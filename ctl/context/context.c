/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - see context.h. */
#include "ctl/context/context.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/keys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { CONTEXT_FILE_BYTES_MAX = 1 << 18 };

const ContextKey context_keys[CONTEXT_KEYS] = {
    {"cluster", "SDTRAIN_CLUSTER", false, false},
    {"etcd", "SDTRAIN_ETCD", false, false},
    {"etcd_ca", "SDTRAIN_ETCD_CA", true, false},
    {"etcd_cert", "SDTRAIN_ETCD_CERT", true, false},
    {"etcd_key", "SDTRAIN_ETCD_KEY", true, true},
    {"etcd_tls_name", "SDTRAIN_ETCD_TLS_NAME", false, false},
    {"etcd_user", "SDTRAIN_ETCD_USER", false, false},
    {"etcd_password_file", "SDTRAIN_ETCD_PASSWORD_FILE", true, true},
};

enum { CLUSTER, ETCD, CA, CERT, KEY, TLS_NAME, USER, PASSWORD_FILE }; /* indices in context_keys */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- rights ---- */

/* Refuses a file if another user could replace it by writing to its folder. A folder with the sticky bit (/tmp) is
 * accepted, because only the owner of a file can replace the file there. */
static int check_folder(const char *path, Error *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat st;
    if (slash && slash - path >= (ptrdiff_t)sizeof(folder))
        return error_set(err, -ENAMETOOLONG, "%.60s...: the name is too long", path);
    (void)snprintf(folder, sizeof(folder), "%.*s", slash > path ? (int)(slash - path) : 1,
                   slash ? path : ".");
    if (stat(folder, &st) < 0)
        return error_errno(err, -errno, "%s", folder);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return error_set(err, -EPERM,
                         "%s: wrong rights: its folder belongs to user %u, not to you or root",
                         path, (unsigned)st.st_uid);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        return error_set(err, -EPERM,
                         "%s: wrong rights: others may write to its folder (mode %04o), and so put "
                         "another file there; chmod go-w %s",
                         path, st.st_mode & 07777, folder);
    return 0;
}

/* Refuses a file that another user may change. Also refuses a file with a secret if every user may read the file. */
static int check_rights(const char *path, bool secret, Error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return error_errno(err, -errno, "%s", path);
    if (!S_ISREG(st.st_mode)) /* reading a pipe would block every verb */
        return error_set(err, -EINVAL, "%s: it is not a file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return error_set(err, -EPERM, "%s: wrong rights: it belongs to user %u, not to you or root",
                         path, (unsigned)st.st_uid);
    const char *wrong = st.st_mode & (S_IWGRP | S_IWOTH)   ? "others may write to it"
                        : secret && (st.st_mode & S_IROTH) ? "everybody may read it"
                                                           : NULL;
    if (wrong)
        return error_set(err, -EPERM, "%s: wrong rights: %s (mode %04o); chmod %s %s", path, wrong,
                         st.st_mode & 07777, secret ? "go-w,o-r" : "go-w", path);
    /* A symbolic link and its target may be in different folders. */
    _cleanup_free_ char *real = realpath(path, NULL);
    if (!real)
        return error_errno(err, -errno, "%s", path);
    int r = check_folder(path, err);
    return r < 0 ? r : check_folder(real, err);
}

/* ---- one context ---- */

/* Makes a relative path absolute. It is relative to the folder of the context file. */
static void make_absolute(const char *file, char value[CONTEXT_VALUE_MAX], JsonReader *r,
                          const char *key)
{
    const char *slash = strrchr(file, '/');
    char path[PATH_MAX + CONTEXT_VALUE_MAX];
    if (!*value || *value == '/')
        return;
    if (!slash) /* the context file is in the working folder, so the path is right already */
        return;
    int n = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - file), file, value);
    if (n >= CONTEXT_VALUE_MAX)
        json_refuse(r, key, "%.40s... is longer than %d bytes", path, CONTEXT_VALUE_MAX - 1);
    else
        memcpy(value, path, (size_t)n + 1);
}

static void check_pair(JsonReader *r, const Context *c, int one, int other, const char *why)
{
    if (*c->values[one] && !*c->values[other])
        json_refuse(r, context_keys[other].name, "missing, though %s is \"%.200s\": %s",
                    context_keys[one].name, c->values[one], why);
}

static void check_context(JsonReader *r, Context *c)
{
    for (size_t i = 0; i < CONTEXT_KEYS; i++)
        if (context_keys[i].is_file)
            make_absolute(c->file, c->values[i], r, context_keys[i].name);
    if (!*c->values[ETCD])
        json_refuse(r, context_keys[ETCD].name, "missing: a context names an etcd");
    if (*c->values[CLUSTER] && !name_is_valid(c->values[CLUSTER]))
        json_refuse(r, context_keys[CLUSTER].name, "\"%.80s\" is not a name", c->values[CLUSTER]);
    check_pair(r, c, CERT, KEY, "a certificate needs its key");
    check_pair(r, c, KEY, CERT, "a key needs its certificate");
    check_pair(r, c, CERT, CA, "TLS needs the authority");
    check_pair(r, c, USER, PASSWORD_FILE, "a user needs both");
    check_pair(r, c, PASSWORD_FILE, USER, "a user needs both");
}

static void read_context(JsonReader *all, const char *name, const char *file, Contexts *ret)
{
    JsonReader r = json_get_object(all, name, JSON_REQUIRED);
    Context c = {0};
    if (!name_is_valid(name))
        json_refuse(all, name, "a context's name has only a-z, 0-9, '.' and '-'");
    (void)snprintf(c.name, sizeof(c.name), "%s", name);
    (void)snprintf(c.file, sizeof(c.file), "%s", file);
    for (size_t i = 0; i < CONTEXT_KEYS; i++)
        (void)json_get_text(&r, context_keys[i].name, JSON_OPTIONAL, c.values[i],
                            sizeof(c.values[i]));
    check_context(&r, &c);
    if (json_close(&r) < 0)
        return;
    for (size_t i = 0; i < ret->n; i++)
        if (strcmp(ret->all[i].name, name) == 0)
            return; /* the file that was read first has a context of this name */
    if (ret->n == CONTEXTS_MAX)
        json_refuse(all, name, "more than %d contexts", CONTEXTS_MAX);
    else
        ret->all[ret->n++] = c;
}

/* ---- the files ---- */

static int read_file(const char *file, Contexts *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    const char *name;
    json_t *one;
    if (!*file || (access(file, F_OK) < 0 && errno == ENOENT))
        return 0;
    int r = check_rights(file, false, err);
    r = r < 0 ? r : json_read_file(file, CONTEXT_FILE_BYTES_MAX, &root, err);
    if (r < 0)
        return r;
    JsonReader reader = json_open(file, root, JSON_KNOWN_KEYS, err);
    char chosen[sizeof(ret->chosen)] = "";
    if (json_get_text(&reader, "context", JSON_OPTIONAL, chosen, sizeof(chosen)) && !*ret->chosen) {
        memcpy(ret->chosen, chosen, sizeof(chosen));
        (void)snprintf(ret->chosen_by, sizeof(ret->chosen_by), "%s", file);
    }
    JsonReader all = json_get_object(&reader, "contexts", JSON_OPTIONAL);
    if (json_object_size(all.object) > CONTEXTS_MAX)
        json_refuse(&reader, "contexts", "more than %d contexts", CONTEXTS_MAX);
    else
        json_object_foreach (all.object, name, one)
            read_context(&all, name, file, ret);
    (void)json_close(&all); /* the error is recorded in reader */
    return json_close(&reader);
}

static int by_name(const void *a, const void *b)
{
    const Context *x = a, *y = b;
    return strcmp(x->name, y->name);
}

int contexts_read(Contexts *ret, Error *err)
{
    const char *config = environment("XDG_CONFIG_HOME"), *home = environment("HOME");
    const char *system_file = environment("SDTRAIN_CONTEXTS");
    *ret = (Contexts){.all = memory_zeroed(CONTEXTS_MAX, sizeof(*ret->all))};
    if (config && *config == '/') /* the XDG specification says to ignore relative paths */
        (void)snprintf(ret->own_file, sizeof(ret->own_file), "%s/sdtrain/sdctl.json", config);
    else if (home)
        (void)snprintf(ret->own_file, sizeof(ret->own_file), "%s/.config/sdtrain/sdctl.json", home);
    (void)snprintf(ret->system_file, sizeof(ret->system_file), "%s",
                   system_file ? system_file : "/etc/sdtrain/sdctl.json");
    int r = read_file(ret->own_file, ret, err);
    r = r < 0 ? r : read_file(ret->system_file, ret, err);
    if (r < 0) {
        contexts_clear(ret);
        return r;
    }
    qsort(ret->all, ret->n, sizeof(*ret->all), by_name);
    return 0;
}

void contexts_clear(Contexts *contexts)
{
    free(contexts->all);
    *contexts = (Contexts){0};
}

const Context *contexts_find(const Contexts *contexts, const char *name, Error *err)
{
    char names[300] = "";
    size_t used = 0;
    for (size_t i = 0; i < contexts->n; i++) {
        if (strcmp(contexts->all[i].name, name) == 0)
            return &contexts->all[i];
        if (used + strlen(contexts->all[i].name) + 6 < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                                     contexts->all[i].name);
    }
    (void)error_set(err, -ENOENT, "there is no context \"%.80s\"; %s%s (%s, %s)", name,
                    contexts->n ? "there is " : "none is defined", names, contexts->own_file,
                    contexts->system_file);
    return NULL;
}

/* ---- the context in use ---- */

const char *contexts_in_use(const Contexts *contexts, const ClientOptions *options,
                            const char **ret_by)
{
    const char *variable = environment("SDTRAIN_CONTEXT");
    if (options->context) {
        *ret_by = "--context";
        return options->context;
    }
    if (options->etcd || environment("SDTRAIN_ETCD"))
        return NULL;
    *ret_by = variable ? "SDTRAIN_CONTEXT" : contexts->chosen_by;
    return variable ? variable : *contexts->chosen ? contexts->chosen : NULL;
}

static int check_secrets(const Context *c, Error *err)
{
    for (size_t i = 0; i < CONTEXT_KEYS; i++) {
        if (!context_keys[i].is_file || !*c->values[i])
            continue;
        int r = check_rights(c->values[i], context_keys[i].is_secret, err);
        if (r < 0) /* for the caller, -ENOENT means that the context is missing */
            return error_prefix(err, r == -ENOENT ? -EINVAL : r, "%s: contexts.%s.%s", c->file,
                                c->name, context_keys[i].name);
    }
    return 0;
}

/* Sets the environment variables of the context. If --context overrides the etcd of the environment, the certificates
 * and user of that other etcd are unset. */
static int export_context(const Context *c, bool named, Error *err)
{
    const bool other = named && environment("SDTRAIN_ETCD");
    for (size_t i = 0; i < CONTEXT_KEYS; i++) {
        const char *variable = context_keys[i].variable, *value = c->values[i];
        int r = other ? unsetenv(variable) : 0;
        if (r == 0 && *value && (named || !environment(variable)))
            r = setenv(variable, value, 1);
        if (r < 0)
            return error_errno(err, -errno, "cannot set %s", variable);
    }
    return 0;
}

int context_apply(const ClientOptions *options, Error *err)
{
    const char *by;
    if (!options->context && (options->etcd || environment("SDTRAIN_ETCD")))
        return 0; /* a bad context file must not stop a user who does not need the file */
    Contexts contexts;
    int r = contexts_read(&contexts, err);
    if (r < 0)
        return r;
    const char *name = contexts_in_use(&contexts, options, &by);
    const Context *c = name ? contexts_find(&contexts, name, err) : NULL;
    if (name && !c)
        r = error_prefix(err, -ENOENT, "%s", by);
    r = c ? check_secrets(c, err) : r;
    r = c && r == 0 ? export_context(c, options->context != NULL, err) : r;
    contexts_clear(&contexts);
    return r;
}
