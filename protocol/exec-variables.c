/* SPDX-License-Identifier: Apache-2.0 */
/* exec-variables.c - see exec-variables.h. */
#include "protocol/exec-variables.h"

#include "base/macro.h"
#include "base/memory.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USER_BYTES = 4096 };

/* is_ranks: the value differs between the ranks of a node. */
static const struct {
    const char *name;
    bool is_ranks;
} variables[EXEC_VARIABLES] = {
    [EXEC_RANK] = {"RANK", true},
    [EXEC_WORLD_SIZE] = {"WORLD_SIZE"},
    [EXEC_LOCAL_RANK] = {"LOCAL_RANK", true},
    [EXEC_LOCAL_WORLD_SIZE] = {"LOCAL_WORLD_SIZE"},
    [EXEC_GROUP_RANK] = {"GROUP_RANK"},
    [EXEC_GROUP_WORLD_SIZE] = {"GROUP_WORLD_SIZE"},
    [EXEC_ROLE_RANK] = {"ROLE_RANK", true},
    [EXEC_ROLE_WORLD_SIZE] = {"ROLE_WORLD_SIZE"},
    [EXEC_ROLE_NAME] = {"ROLE_NAME"},
    [EXEC_NODE_RANK] = {"NODE_RANK"},
    [EXEC_CROSS_RANK] = {"CROSS_RANK"},
    [EXEC_CROSS_SIZE] = {"CROSS_SIZE"},
    [EXEC_LOCAL_SIZE] = {"LOCAL_SIZE"},
    [EXEC_MASTER_ADDR] = {"MASTER_ADDR", true}, /* not known yet when a node's setup runs */
    [EXEC_MASTER_PORT] = {"MASTER_PORT", true},
    [EXEC_RUN_ID] = {"TORCHELASTIC_RUN_ID"},
    [EXEC_RESTART_COUNT] = {"TORCHELASTIC_RESTART_COUNT"},
    [EXEC_MAX_RESTARTS] = {"TORCHELASTIC_MAX_RESTARTS"},
    [EXEC_USE_AGENT_STORE] = {"TORCHELASTIC_USE_AGENT_STORE"},
    [EXEC_ERROR_FILE] = {"TORCHELASTIC_ERROR_FILE", true},
    [EXEC_CUDA_DEVICE_ORDER] = {"CUDA_DEVICE_ORDER"},
    [EXEC_CUDA_VISIBLE_DEVICES] = {"CUDA_VISIBLE_DEVICES", true}, /* with own_gpu */
    [EXEC_JOB] = {"SDTRAIN_JOB"},
    [EXEC_GENERATION] = {"SDTRAIN_GENERATION"},
    [EXEC_NODE] = {"SDTRAIN_NODE"},
    [EXEC_SOCKET] = {"SDTRAIN_SOCKET", true},
    [EXEC_CHECKPOINT] = {"SDTRAIN_CHECKPOINT"},
    [EXEC_STEP] = {"SDTRAIN_STEP"},
    [EXEC_HOLD] = {"SDTRAIN_HOLD", true}, /* not known yet when a node's setup runs */
};

const char *exec_variable_name(ExecVariable variable)
{
    assert((unsigned)variable < EXEC_VARIABLES);
    return variables[variable].name;
}

/* Returns the variable with this name of n bytes; EXEC_VARIABLES: there is none. */
static ExecVariable find(const char *name, size_t n)
{
    for (int i = 0; i < EXEC_VARIABLES; i++)
        if (strlen(variables[i].name) == n && memcmp(variables[i].name, name, n) == 0)
            return (ExecVariable)i;
    return EXEC_VARIABLES;
}

bool exec_variable_is_ours(const char *name)
{
    return find(name, strlen(name)) != EXEC_VARIABLES || strncmp(name, "SDTRAIN_", 8) == 0;
}

const char *exec_variables_check(const char *text, bool for_node, char *ret, size_t size)
{
    for (const char *at = text; (at = strchr(at, '$'));) {
        const char *end = at[1] == '{' ? strchr(at, '}') : NULL;
        if (at[1] == '$') {
            at += 2;
            continue;
        }
        if (!end) {
            (void)snprintf(ret, size, "\"%.20s\" begins with neither $$ nor ${NAME}", at);
            return ret;
        }
        const ExecVariable v = find(at + 2, (size_t)(end - at) - 2);
        if (v == EXEC_VARIABLES || (for_node && variables[v].is_ranks)) {
            (void)snprintf(ret, size,
                           v == EXEC_VARIABLES ? "%.*s is not known"
                                               : "%.*s has no value for a whole node",
                           (int)MIN(end - at + 1, 60), at);
            return ret;
        }
        at = end + 1;
    }
    return NULL;
}

char *exec_variables_fill(const char *text, const char *const values[EXEC_VARIABLES])
{
    char *out = NULL;
    size_t n_bytes;
    FILE *f = memory_given(open_memstream(&out, &n_bytes));
    for (const char *at = text; *at;) {
        const char *dollar = strchrnul(at, '$');
        (void)fwrite(at, 1, (size_t)(dollar - at), f);
        at = dollar;
        if (at[0] == '$' && at[1] == '$') {
            (void)fputc('$', f);
            at += 2;
        } else if (*at) {
            const char *end = strchr(at, '}');
            const ExecVariable v = find(at + 2, (size_t)(end - at) - 2);
            assert(v != EXEC_VARIABLES); /* exec_variables_check() has accepted the text */
            (void)fputs(values[v] ? values[v] : "", f);
            at = end + 1;
        }
    }
    if (fclose(f) != 0)
        (void)memory_given(NULL); /* only a lack of memory fails */
    return out;
}

/* ---- the environment ---- */

static char *number(int64_t n) { return memory_format("%lld", (long long)n); }

void exec_values_set(ExecValues *values, ExecVariable variable, char *text)
{
    free(values->of[variable]);
    values->of[variable] = text;
}

void exec_values_new(const Job *job, const ExecRank *rank, ExecValues *ret)
{
    *ret = (ExecValues){
        .of = {
            [EXEC_RANK] = number(rank->rank),
            [EXEC_WORLD_SIZE] = number(rank->world_size),
            [EXEC_LOCAL_RANK] = number(job->exec.own_gpu ? 0 : rank->local_rank),
            [EXEC_LOCAL_WORLD_SIZE] = number(rank->per_node),
            [EXEC_GROUP_RANK] = number(rank->node_rank),
            [EXEC_GROUP_WORLD_SIZE] = number(rank->n_nodes),
            [EXEC_ROLE_RANK] = number(rank->rank),
            [EXEC_ROLE_WORLD_SIZE] = number(rank->world_size),
            [EXEC_ROLE_NAME] = memory_text("default"),
            [EXEC_NODE_RANK] = number(rank->node_rank),
            [EXEC_CROSS_RANK] = number(rank->node_rank),
            [EXEC_CROSS_SIZE] = number(rank->n_nodes),
            [EXEC_LOCAL_SIZE] = number(rank->per_node),
            [EXEC_RUN_ID] = memory_format("%s-%s", job->name, rank->submission),
            [EXEC_RESTART_COUNT] = number(rank->generation - 1),
            [EXEC_MAX_RESTARTS] = number(job->recovery.max_failures_at_same_step),
            [EXEC_USE_AGENT_STORE] = memory_text("False"),
            [EXEC_ERROR_FILE] = memory_format("%s/error.json", rank->folder),
            [EXEC_JOB] = memory_text(job->name),
            [EXEC_GENERATION] = number(rank->generation),
            [EXEC_NODE] = memory_text(rank->node),
            [EXEC_SOCKET] = memory_format("%s/socket", rank->folder),
            [EXEC_CHECKPOINT] = memory_text(rank->checkpoint),
            [EXEC_STEP] = *rank->checkpoint ? number(rank->checkpoint_step) : memory_text(""),
            [EXEC_HOLD] = memory_text(""),
        }};
    ret->tmp = memory_text(rank->tmp);
    ret->flight = memory_format("%s/flights/%s-g%lld-rank", rank->flights, job->name,
                                (long long)rank->generation);
    if (rank->gpus) {
        exec_values_set(ret, EXEC_CUDA_DEVICE_ORDER, memory_text("PCI_BUS_ID"));
        exec_values_set(ret, EXEC_CUDA_VISIBLE_DEVICES, memory_text(rank->gpus));
    }
}

void exec_values_clear(ExecValues *values)
{
    for (size_t i = 0; i < ELEMENTSOF(values->of); i++)
        free(values->of[i]);
    free(values->tmp);
    free(values->flight);
    *values = (ExecValues){0};
}

/* ---- the list ---- */

typedef struct Entries {
    char **of; /* ends with NULL */
    size_t n, room;
} Entries;

static bool has_name(const char *entry, const char *name, size_t n)
{
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

/* Takes over the text "NAME=value". */
static void put(Entries *e, char *entry)
{
    const size_t n = strcspn(entry, "=");
    for (size_t i = 0; i < e->n; i++)
        if (has_name(e->of[i], entry, n)) {
            free(e->of[i]);
            e->of[i] = entry;
            return;
        }
    e->of = memory_grow(e->of, e->n, &e->room, sizeof(*e->of));
    e->of[e->n++] = entry;
}

static void put_unless_set(Entries *e, const char *name, const char *value)
{
    for (size_t i = 0; i < e->n; i++)
        if (has_name(e->of[i], name, strlen(name)))
            return;
    put(e, memory_format("%s=%s", name, value));
}

static void put_user(Entries *e)
{
    char buffer[USER_BYTES];
    struct passwd user, *found = NULL;
    put(e, memory_text("PATH=/usr/local/bin:/usr/bin:/bin"));
    if (getpwuid_r(geteuid(), &user, buffer, sizeof(buffer), &found) != 0 || !found)
        return; /* a user without an entry, as in a container, has no names */
    put(e, memory_format("HOME=%s", user.pw_dir));
    put(e, memory_format("USER=%s", user.pw_name));
    put(e, memory_format("LOGNAME=%s", user.pw_name));
}

/* Defaults that torchrun sets, and those that make a hang of NCCL leave a record. */
static void put_defaults(Entries *e, const Job *job, const ExecValues *values)
{
    const char *error_file = values->of[EXEC_ERROR_FILE];
    _cleanup_free_ char *folder =
        memory_bytes(error_file, (size_t)(strrchr(error_file, '/') - error_file));
    _cleanup_free_ char *pipe = memory_format("%s/nccl-", folder);
    if (job->world.per_node > 1)
        put_unless_set(e, "OMP_NUM_THREADS", "1");
    put_unless_set(e, "PYTHONUNBUFFERED", "1");
    put_unless_set(e, "TMPDIR", values->tmp);
    put_unless_set(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (job->exec.device != JOB_DEVICE_CUDA)
        return;
    put_unless_set(e, "TORCH_FR_BUFFER_SIZE", "2000");
    put_unless_set(e, "TORCH_NCCL_DUMP_ON_TIMEOUT", "1");
    put_unless_set(e, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", values->flight);
    put_unless_set(e, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", pipe);
}

char **exec_environment_new(const Job *job, const ExecValues *values, char *const *node,
                            char *const *secrets)
{
    Entries e = {0};
    put_user(&e);
    for (; node && *node; node++)
        put(&e, memory_text(*node));
    for (char *const *one = job->exec.env; one && *one; one++)
        put(&e, exec_variables_fill(*one, (const char *const *)values->of));
    for (; secrets && *secrets; secrets++)
        put(&e, memory_text(*secrets));
    put_defaults(&e, job, values);
    for (int i = 0; i < EXEC_VARIABLES; i++)
        if (values->of[i])
            put(&e, memory_format("%s=%s", exec_variable_name((ExecVariable)i), values->of[i]));
    e.of = memory_grow(e.of, e.n, &e.room, sizeof(*e.of));
    e.of[e.n] = NULL;
    return e.of;
}

const char *exec_environment_find(char *const *environment, const char *name)
{
    for (; *environment; environment++)
        if (has_name(*environment, name, strlen(name)))
            return *environment + strlen(name) + 1;
    return NULL;
}

char **exec_arguments_new(char *const *list, const ExecValues *values)
{
    size_t n = 0;
    while (list[n])
        n++;
    char **filled = memory_zeroed(n + 1, sizeof(*filled));
    for (size_t i = 0; i < n; i++)
        filled[i] = exec_variables_fill(list[i], (const char *const *)values->of);
    return filled;
}
