/* SPDX-License-Identifier: Apache-2.0 */
/* eval-list.c - see eval-list.h. */
#include "ctl/job/results/eval-list.h"

#include "etcd/etcd-wait.h"

#include <string.h>

int eval_list_add(ReportEvals *to, CtlClient *client, const ModelJob *job, Error *err)
{
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = client_get(client, key_evals(client->cluster, job->name, key), true, &answer, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < answer->n_kvs; i++)
        report_add_results(to, answer->kvs[i].key, answer->kvs[i].value, answer->kvs[i].n_value);
    report_add_evals(to, job->name, &job->phase);
    return 0;
}

int eval_list_add_followers(ReportEvals *to, CtlClient *client, const Model *m, const ModelJob *job,
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
        int r = eval_list_add(to, client, other, err);
        if (r < 0)
            return r;
    }
    return 0;
}
