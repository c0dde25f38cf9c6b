/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - see program.h. */
#include "ctl/job/start/program.h"

#include "base/json/json.h"
#include "base/macro.h"
#include "base/memory.h"
#include "protocol/exec-variables.h"

#include <string.h>

static int check_place(const char *source, const char *key, const char *uri, Error *err)
{
    if (!uri || *uri == '/' || strstr(uri, "://"))
        return 0;
    return error_set(
        err, -EINVAL,
        "%s: %s: \"%s\" is relative; ranks run elsewhere, so give an absolute path or a "
        "URI",
        source, key, uri);
}

int program_check(const char *source, const Job *job, const char *resume, Error *err)
{
    if (resume && job->kind == JOB_EVAL)
        return error_set(err, -EINVAL, "--resume: an evaluation takes the checkpoints of job %s",
                         job->of.job);
    if (resume)
        return error_set(
            err, -EINVAL,
            "--resume: a program finds its checkpoint by itself (SDTRAIN_CHECKPOINT, or "
            "its own folder)");
    int r = check_place(source, "checkpoint.uri", job->checkpoint.uri, err);
    const bool draws = job->eval.work == EVAL_GRID;
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++)
        r = check_place(source, draws ? "grid.streams" : "loss.streams", job->data.streams[i].uri,
                        err);
    if (r == 0)
        r = check_place(source, "grid.empty_text", job->data.empty_text_uri, err);
    if (r == 0)
        r = check_place(source, "grid.model", job->eval.grid.model, err);
    return r < 0 ? r : check_place(source, "grid.uri", job->eval.grid.uri, err);
}

int program_check_leave(const char *source, const Job *job, const Model *model, Error *err)
{
    const char *settings = model->n_candidates ? model->candidates[0].record.settings : "";
    _cleanup_json_ json_t *json = json_loads(settings, JSON_REJECT_DUPLICATES, NULL);
    const json_int_t usec = json_integer_value(json_object_get(json, "leave_deadline_usec"));
    if (usec == 0 || job->exec.leave_sec <= usec / (json_int_t)USEC_PER_SEC)
        return 0; /* an older leader does not report its settings */
    return error_set(err, -EINVAL,
                     "%s: exec.leave_s: %d is longer than the %lld s that the controllers wait for "
                     "a world to leave (leave_deadline_sec)",
                     source, job->exec.leave_sec, (long long)(usec / (json_int_t)USEC_PER_SEC));
}

int program_check_followed(const char *source, const Job *job, const Model *model, Error *err)
{
    Error ignored = ERROR_INIT; /* the leader reports errors of that job */
    _cleanup_(job_freep) Job *other = NULL;
    const ModelJob *followed = model_job(model, job->of.job);
    if (!followed || !followed->has_spec ||
        job_parse_any(followed->name, followed->spec.spec, strlen(followed->spec.spec), &other,
                      &ignored) < 0)
        return 0; /* the evaluation waits for it */
    if (other->kind == JOB_EVAL)
        return error_set(err, -EINVAL, "%s: of.job: %s is an evaluation, and has no checkpoints",
                         source, other->name);
    if (!job_is_program(job) && other->kind != JOB_TRAIN)
        return error_set(err, -EINVAL,
                         "%s: of.job: only its program can read the checkpoints of %s, so that "
                         "sdtrain cannot evaluate them; exec runs a program",
                         source, other->name);
    if (!other->checkpoint.uri)
        return error_set(err, -EINVAL, "%s: of.job: %s has no checkpoint.uri, and registers none",
                         source, other->name);
    _cleanup_free_ char *one = memory_format("%s/any", other->checkpoint.uri);
    if (!job_exec_may_register(job, one))
        return error_set(
            err, -EINVAL,
            "%s: checkpoint.uri: \"%s\" is not where the checkpoints of job %s lie, \"%s\"", source,
            job->checkpoint.uri, other->name, other->checkpoint.uri);
    return 0;
}

char *program_encode(const char *text, const SpecRecord *spec)
{
    ProgramRecord record = {.file = (char *)text};
    memcpy(record.submission, spec->submission, sizeof(record.submission));
    memcpy(record.by, spec->by, sizeof(record.by));
    return program_record_encode(&record, NULL);
}

static int own_slots_of(const NodeRecord *node, const Job *job)
{
    if (!node_knows(node, FEATURE_EVALS))
        return 0;
    return job->train.device == JOB_DEVICE_CUDA ? MIN(node->n_slots, node->n_gpus) : node->n_slots;
}

int program_slots_of(const NodeRecord *node, const Job *job)
{
    if (!job_is_program(job))
        return own_slots_of(node, job);
    const int n =
        job->exec.device == JOB_DEVICE_CUDA ? MIN(node->n_slots, node->n_gpus) : node->n_slots;
    const bool runs_programs = node_knows(node, FEATURE_PROGRAMS);
    return runs_programs && n >= job->world.per_node ? job->world.per_node : 0;
}

int program_check_slots(const char *source, const Job *job, int slots, Error *err)
{
    const int min = job->world.min, per_node = job->world.per_node;
    if (min <= slots)
        return 0;
    if (slots == 0)
        return error_set(err, -ENOSPC,
                         "%s: world.per_node: no node that is known runs programs (allow_exec) and "
                         "has %d slot%s%s; --queue submits it all the same",
                         source, per_node, per_node == 1 ? "" : "s",
                         job->exec.device == JOB_DEVICE_CUDA ? " with a GPU" : "");
    return error_set(
        err, -ENOSPC,
        "%s: world.min: %d ranks are needed at least, and the nodes that are known and "
        "run programs (allow_exec) have %d at %d per node; --queue submits it all the "
        "same",
        source, min, slots, per_node);
}

int program_explain(const char *source, int r, Error *err)
{
    return r == -EACCES ? error_prefix(err, r,
                                       "%s: kind: \"exec\" runs a program, which etcd permits "
                                       "this user only with etcd-roles --programs",
                                       source)
                        : r;
}

static void print_command(const Job *job)
{
    printf("%s", job->exec.command[0]);
    if (job->exec.command[1])
        printf(" %s%s", job->exec.command[1], job->exec.command[2] ? " ..." : "");
    printf(" on %d to %d ranks, %d per node", job->world.min, job->world.max, job->world.per_node);
    if (job->exec.steps > 0)
        printf(", %lld steps", (long long)job->exec.steps);
}

void program_print(const Job *job, const char *how)
{
    printf("job %s %s: ", job->name, how);
    if (job_is_program(job))
        print_command(job);
    else if (job->eval.work == EVAL_GRID)
        printf("%d picture%s", job->eval.grid.samples, job->eval.grid.samples == 1 ? "" : "s");
    else
        printf("loss of %lld samples", (long long)job->eval.positions);
    if (job->kind == JOB_EVAL)
        printf(", for %s of job %s",
               job->of.every_steps == 0 ? "the newest checkpoint" : "checkpoints", job->of.job);
    printf("\n");
}

/* Returns "<GPU>,<GPU>", of so many. */
static char *gpus_of(int n)
{
    char *text = memory_text("<GPU>");
    for (int i = 1; i < n; i++) {
        char *longer = memory_format("%s,<GPU>", text);
        free(text);
        text = longer;
    }
    return text;
}

/* Returns a list "NAME=***" that ends with NULL. */
static char **masked(char *const *names)
{
    size_t n = 0;
    while (names && names[n])
        n++;
    char **list = memory_zeroed(n + 1, sizeof(*list));
    for (size_t i = 0; i < n; i++)
        list[i] = memory_format("%s=***", names[i]);
    return list;
}

void program_print_environment(const Job *job)
{
    char *const user[] = {"HOME=<home of the node's user>", "USER=<the node's user>",
                          "LOGNAME=<the node's user>", NULL};
    const int per_node = job->world.per_node;
    const bool has_gpus = job->exec.device == JOB_DEVICE_CUDA;
    _cleanup_free_ char *gpus = has_gpus ? gpus_of(job->exec.own_gpu ? 1 : per_node) : NULL;
    const ExecRank rank = {.world_size = job->world.max,
                           .per_node = per_node,
                           .n_nodes = job->world.max / per_node,
                           .generation = 1,
                           .node = "<node>",
                           .submission = "<submission>",
                           .gpus = gpus,
                           .folder = "<folder of the rank>",
                           .tmp = "<folder of the world on this node>",
                           .flights = "<folder of the node's ranks>",
                           .checkpoint = ""};
    ExecValues values;
    exec_values_new(job, &rank, &values);
    exec_values_set(&values, EXEC_MASTER_ADDR, memory_text("<address of the node>"));
    exec_values_set(&values, EXEC_MASTER_PORT, memory_text("<port>"));
    char **secrets = masked(job->exec.secrets);
    char **environment = exec_environment_new(job, &values, user, secrets);
    char **command = exec_arguments_new(job->exec.command, &values);
    printf("rank 0 of %d would run, in %s:\n ", job->world.max, job->exec.dir);
    for (char **one = command; *one; one++)
        printf(" %s", *one);
    printf("\nwith trainer_environment of its node, and\n");
    for (char **one = environment; *one; one++)
        printf("  %s\n", *one);
    memory_free_texts(command);
    memory_free_texts(environment);
    memory_free_texts(secrets);
    exec_values_clear(&values);
}
