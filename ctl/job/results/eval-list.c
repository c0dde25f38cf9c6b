/* SPDX-License-Identifier: Apache-2.0 */
/* eval-list.c - see eval-list.h. */
#include "ctl/job/results/eval-list.h"

#include "base/memory.h"
#include "etcd/etcd-wait.h"

#include <string.h>

void eval_list_clear(EvalList *l)
{
    for (size_t i = 0; i < l->n_records; i++) {
        eval_record_clear(l->records[i]);
        free(l->records[i]);
    }
    free(l->records);
    free(l->evals.list);
    *l = (EvalList){0};
}

int eval_list_add(EvalList *l, CtlClient *client, const ModelJob *job, Error *err)
{
    char key[KEY_MAX];
    const size_t first = l->n_records;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = client_get(client, key_evals(client->cluster, job->name, key), true, &answer, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < answer->n_kvs; i++) {
        const EtcdKeyValue *kv = &answer->kvs[i];
        Error ignored = ERROR_INIT;
        EvalRecord *record = memory_new(EvalRecord);
        if (eval_record_decode(kv->key, kv->value, kv->n_value, record, &ignored) < 0) {
            free(record);
            continue;
        }
        l->records = memory_grow(l->records, l->n_records, &l->room, sizeof(*l->records));
        l->records[l->n_records++] = record;
    }
    report_add_evals(&l->evals, job->name, &job->phase, l->records + first, l->n_records - first);
    return 0;
}

int eval_list_add_followers(EvalList *l, CtlClient *client, const Model *m, const ModelJob *job,
                            Error *err)
{
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *other = &m->jobs[i];
        Error ignored = ERROR_INIT; /* a job file that does not parse follows no job */
        _cleanup_(job_freep) Job *spec = NULL;
        if (!other->has_spec || job_parse_any(other->name, other->spec.spec,
                                              strlen(other->spec.spec), &spec, &ignored) < 0)
            continue;
        if (spec->kind != JOB_EVAL || strcmp(spec->of.job, job->name) != 0 ||
            strcmp(other->phase.eval.submission, model_submission(job)) != 0)
            continue;
        int r = eval_list_add(l, client, other, err);
        if (r < 0)
            return r;
    }
    return 0;
}
