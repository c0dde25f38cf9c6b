/* SPDX-License-Identifier: Apache-2.0 */
/* runner-start.c - see runner-internal.h: what is looked at before the world goes. */
#include "exec/runner-internal.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/process/orphans.h"
#include "exec/program-path.h"
#include "exec/resources/gpus.h"
#include "exec/resources/port.h"
#include "exec/resources/secrets.h"
#include "exec/resources/shared-memory.h"
#include "exec/resources/temporary-folder.h"

#include <string.h>
#include <sys/stat.h>

bool runner_is_rank0(const Runner *r) { return r->assign.assign.rank == 0; }

const char *runner_variable(const Runner *r, const char *name)
{
    return exec_environment_find(r->own_environment, name);
}

/* Removes what the last program of this slot has left in /dev/shm. A failure costs only room there. */
static void clear_shared_memory(const char *base, const char *slot)
{
    char list[256];
    Error err = ERROR_INIT;
    (void)snprintf(list, sizeof(list), "%s/shm-%s", base, slot);
    int r = shared_memory_clear("/dev/shm", list, &err);
    if (r > 0)
        log_info("removed %d file(s) that the last program left in /dev/shm", r);
    if (r >= 0)
        r = shared_memory_note("/dev/shm", list, &err);
    if (r < 0)
        log_warning("what the last program left in /dev/shm stays: %s", err.text);
}

/* Enters the folder that the ranks of this world on this node share. */
static int enter_temporary_folder(Runner *r, const char *base, Error *err)
{
    const ChannelAssign *a = &r->assign.assign;
    char name[64];
    (void)snprintf(name, sizeof(name), "%lld-%d-%.8s", (long long)r->assign.generation,
                   a->rank / r->job->world.per_node, a->submission);
    r->tmp_hold =
        temporary_folder_enter(base, RUNNER_TMP_PREFIX, name, r->tmp, sizeof(r->tmp), err);
    return MIN(r->tmp_hold, 0);
}

int runner_make_folder(Runner *r, Error *err)
{
    const char *base = runner_variable(r, EXEC_DIR_VARIABLE),
               *slot = runner_variable(r, "SDTRAIN_SLOT");
    if (!base || !slot)
        return error_set(err, -EINVAL, "%s and SDTRAIN_SLOT are not set", EXEC_DIR_VARIABLE);
    if (snprintf(r->folder, sizeof(r->folder), "%s/slot%s", base, slot) >= (int)sizeof(r->folder))
        return error_set(err, -ENAMETOOLONG, "%s: too long", base);
    int q = folder_remove(r->folder, err);
    if (q == 0)
        q = folder_make(base, err);
    if (q == 0)
        q = flight_records_prepare(base, err);
    if (q == 0)
        clear_shared_memory(base, slot);
    if (q == 0 && mkdir(r->folder, 0700) < 0)
        q = error_errno(err, -errno, "%s", r->folder);
    return q < 0 ? q : enter_temporary_folder(r, base, err);
}

void runner_fill_values(Runner *r)
{
    const ChannelAssign *a = &r->assign.assign;
    const int per_node = r->job->world.per_node;
    const ExecRank rank = {.rank = a->rank,
                           .world_size = a->world_size,
                           .local_rank = a->rank % per_node,
                           .per_node = per_node,
                           .node_rank = a->rank / per_node,
                           .n_nodes = a->world_size / per_node,
                           .generation = r->assign.generation,
                           .node = a->node,
                           .submission = a->submission,
                           .gpus = r->gpus[0] ? r->gpus : NULL,
                           .folder = r->folder,
                           .tmp = r->tmp,
                           .flights = runner_variable(r, EXEC_DIR_VARIABLE),
                           .checkpoint = a->resume_uri,
                           .checkpoint_step = a->resume_step};
    exec_values_new(r->job, &rank, &r->values);
}

static int check_world(const Runner *r, Error *err)
{
    const ChannelAssign *a = &r->assign.assign;
    const int per_node = r->job->world.per_node;
    if (!job_is_program(r->job))
        return error_set(err, -EINVAL, "kind: this job is trained by sdtrainer");
    if (strcmp(r->job->name, a->job) != 0)
        return error_set(err, -EINVAL, "name: %s is not the job %s that the world is of",
                         r->job->name, a->job);
    if (r->job->kind == JOB_EVAL && !a->resume_uri[0])
        return error_set(err, -EINVAL, "the world names no checkpoint to evaluate");
    if (a->resume_uri[0] && !job_exec_may_register(r->job, a->resume_uri))
        return error_set(err, -EINVAL, "%.200s: outside of checkpoint.uri", a->resume_uri);
    if (a->world_size % per_node != 0)
        return error_set(err, -EINVAL, "a world of %d ranks is not a multiple of world.per_node %d",
                         a->world_size, per_node);
    return 0;
}

/* The node's part of the program's environment: what this runner was started with, without our own variables. The mark
 * stays, by which a program that outlives its slot is found. */
static char **node_environment(const Runner *r)
{
    size_t n = 0;
    while (r->own_environment[n])
        n++;
    char **list = memory_zeroed(n + 1, sizeof(*list));
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(r->own_environment[i], "SDTRAIN_", 8) != 0 ||
            strncmp(r->own_environment[i], ORPHANS_VARIABLE "=", strlen(ORPHANS_VARIABLE) + 1) == 0)
            list[kept++] = r->own_environment[i];
    return list;
}

char **runner_environment(const Runner *r)
{
    _cleanup_free_ char **node = node_environment(r);
    return exec_environment_new(r->job, &r->values, node, r->secrets);
}

int runner_find_gpus(Runner *r, Error *err)
{
    const ChannelAssign *a = &r->assign.assign;
    const int local_rank = a->rank % r->job->world.per_node;
    if (r->job->exec.device != JOB_DEVICE_CUDA)
        return 0;
    if (!a->gpus[0])
        return error_set(err, -ENODEV, "exec.device: \"cuda\", and this node names no GPU");
    /* A list of one is the rank's own already. */
    const int only = r->job->exec.own_gpu && strchr(a->gpus, ',') ? local_rank : -1;
    return exec_name_gpus("/proc/driver/nvidia/gpus", a->gpus, only, r->gpus, sizeof(r->gpus), err);
}

int runner_read_job(Runner *r, Error *err)
{
    const ChannelAssign *a = &r->assign.assign;
    int q = job_parse_any("the job's spec", a->spec, strlen(a->spec), &r->job, err);
    if (q == 0)
        q = check_world(r, err);
    if (q == 0)
        q = exec_check_folder(r->job->exec.dir, err);
    if (q < 0)
        return q;
    (void)snprintf(r->submission, sizeof(r->submission), "%s", a->submission);
    q = exec_secrets_read(runner_variable(r, EXEC_SECRETS_VARIABLE), r->job->exec.secrets,
                          &r->secrets, err);
    for (char **one = r->secrets; q == 0 && one && *one; one++)
        secret_set_add(&r->masked, strchr(*one, '=') + 1);
    return q;
}

int runner_check_program(const Runner *r, Error *err)
{
    char path[PATH_MAX];
    char **environment = runner_environment(r);
    const char *dirs = exec_environment_find(environment, "PATH");
    int q =
        exec_find_program(r->job->exec.dir, r->job->exec.command[0], dirs ? dirs : "", path, err);
    memory_free_texts(environment);
    return q;
}

int runner_hold_port(Runner *r, Error *err)
{
    int number = 0;
    ChannelMessage m = {.type = CHANNEL_RENDEZVOUS};
    const char *host = r->assign.assign.bind_address;
    int q = exec_hold_port(&r->port, &number, err);
    if (q < 0)
        return q;
    exec_values_set(&r->values, EXEC_MASTER_ADDR, memory_text(host));
    exec_values_set(&r->values, EXEC_MASTER_PORT, memory_format("%d", number));
    (void)snprintf(m.address, sizeof(m.address), strchr(host, ':') ? "[%s]:%d" : "%s:%d", host,
                   number);
    (void)runner_send(r, &m);
    return 0;
}
