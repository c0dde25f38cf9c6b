/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - `sdctl context list`, `show` and `use`. */
#include "base/file.h"
#include "ctl/arguments.h"
#include "ctl/context/context.h"
#include "ctl/context/verbs.h"
#include "ctl/print.h"

#include <string.h>

static json_t *context_json(const Context *c, bool used)
{
    json_t *j = json_pack("{s:s, s:b, s:s}", "context", c->name, "in_use", used, "file", c->file);
    for (size_t i = 0; i < CONTEXT_KEYS; i++)
        (void)json_object_set_new(j, context_keys[i].name,
                                  *c->values[i] ? json_string(c->values[i]) : json_null());
    return j;
}

static void print_list(json_t *all, const char *used, const char *by)
{
    json_t *one;
    size_t i;
    if (json_array_size(all) == 0)
        return;
    printf("  %-16s %-16s %-32s %s\n", "CONTEXT", "CLUSTER", "ETCD", "FILE");
    json_array_foreach (all, i, one)
        printf("%c %-16s %-16s %-32s %s\n",
               json_is_true(json_object_get(one, "in_use")) ? '*' : ' ', json_text(one, "context"),
               *json_text(one, "cluster") ? json_text(one, "cluster") : "default",
               json_text(one, "etcd"), json_text(one, "file"));
    if (used)
        printf("* in use, because %s says so\n", by);
    else if (getenv("SDTRAIN_ETCD"))
        printf("none is in use: SDTRAIN_ETCD names an etcd\n");
    else
        printf("none is in use: give --context NAME, or sdctl context use NAME\n");
}

int context_list(const Arguments *a)
{
    Error err = ERROR_INIT;
    Contexts contexts;
    const char *by = "";
    int r = contexts_read(&contexts, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    const char *used = contexts_in_use(&contexts, &a->client, &by);
    json_t *all = json_array();
    for (size_t i = 0; i < contexts.n; i++)
        json_array_append_new(all, context_json(&contexts.all[i],
                                                used && !strcmp(used, contexts.all[i].name)));
    if (a->json) {
        print_json(all);
    } else {
        print_list(all, used, by);
        json_decref(all);
        if (contexts.n == 0)
            printf("no context is defined in %s or %s\n", contexts.own_file, contexts.system_file);
    }
    contexts_clear(&contexts);
    return CTL_DONE;
}

/* Returns the context named by the operand, or else the context in use. */
static const Context *choose(const Contexts *contexts, const Arguments *a, const char **ret_by,
                             Error *err)
{
    const char *name = a->operand ? a->operand : contexts_in_use(contexts, &a->client, ret_by);
    if (name)
        return contexts_find(contexts, name, err);
    (void)error_set(err, -ENOENT, "no context is in use%s",
                    getenv("SDTRAIN_ETCD") ? ": SDTRAIN_ETCD names an etcd" : "");
    return NULL;
}

int context_show(const Arguments *a)
{
    Error err = ERROR_INIT;
    Contexts contexts;
    const char *by = "", *in_use;
    int r = contexts_read(&contexts, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    const Context *c = choose(&contexts, a, &by, &err);
    in_use = contexts_in_use(&contexts, &a->client, &by);
    const bool used = c && in_use && strcmp(in_use, c->name) == 0;
    if (c && a->json) {
        print_json(context_json(c, used));
    } else if (c) {
        printf("context %s of %s%s%s\n", c->name, c->file, used ? ", in use because of " : "",
               used ? by : "");
        for (size_t i = 0; i < CONTEXT_KEYS; i++)
            if (*c->values[i])
                printf("  %-20s %s\n", context_keys[i].name, c->values[i]);
    }
    contexts_clear(&contexts);
    return c ? CTL_DONE : ctl_fail(&err, -ENOENT);
}

/* Changes only the value "context" in the user's own file, or creates the file. If the file is a symbolic link, its
 * target is written. */
static int write_choice(const char *own, const char *name, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    char folder[PATH_MAX], target[PATH_MAX];
    const char *file = realpath(own, target) ? target : own;
    int r = access(file, F_OK) == 0 ? json_read_file(file, 1 << 18, &root, err) : 0;
    if (r < 0)
        return r;
    if (!root)
        root = json_object();
    /* This cannot fail: valid names are UTF-8. */
    (void)json_object_set_new(root, "context", json_string(name));
    _cleanup_free_ char *text = json_dumps(root, JSON_INDENT(2));
    if (!text)
        return error_set(err, -EINVAL, "%s: cannot be written as JSON", file);
    (void)snprintf(folder, sizeof(folder), "%s", file);
    *strrchr(folder, '/') = '\0';
    r = folder_make(folder, err);
    return r < 0 ? r : file_write(file, text, strlen(text), 0, err);
}

int context_use(const Arguments *a)
{
    Error err = ERROR_INIT;
    Contexts contexts;
    int r = contexts_read(&contexts, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    if (!contexts_find(&contexts, a->operand, &err))
        r = -ENOENT;
    else if (!*contexts.own_file)
        r = error_set(&err, -EINVAL, "neither XDG_CONFIG_HOME nor HOME is set");
    else
        r = write_choice(contexts.own_file, a->operand, &err);
    if (r == 0)
        printf("context %s is the one in use, says %s\n", a->operand, contexts.own_file);
    contexts_clear(&contexts);
    if (r == 0 && getenv("SDTRAIN_ETCD"))
        printf("but not in this shell: SDTRAIN_ETCD names an etcd\n");
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
