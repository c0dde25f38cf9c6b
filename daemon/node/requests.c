/* SPDX-License-Identifier: Apache-2.0 */
/* requests.c - see requests.h. */
#include "daemon/node/requests.h"

#include "base/log.h"
#include "daemon/world/exit.h"
#include "daemon/world/rank.h"

#include <string.h>

static void on_answered(int r, const Error *err, _unused_ const EtcdTxnResult *result,
                        _unused_ void *userdata)
{
    if (r < 0)
        log_warning("an answer to a request may be lost: %s", err->text);
}

static void answer(Etcd *etcd, const EtcdKeyValue *kv, RequestRecord *request,
                   RequestOutcome outcome, const char *text)
{
    assert(outcome != REQUEST_OPEN);
    request->outcome = outcome;
    (void)snprintf(request->answer, sizeof(request->answer), "%s", text);
    exit_repair_text(request->answer);
    EtcdCompare guard = {.key = kv->key, .target = ETCD_MOD_REVISION, .equals = kv->mod_revision};
    _cleanup_free_ char *value = request_record_encode(request, kv->value);
    EtcdOp put = {.kind = ETCD_PUT, .key = kv->key, .value = value};
    int r = etcd_txn(etcd, &guard, 1, &put, 1, on_answered, NULL, NULL);
    if (r < 0)
        log_warning("%s: cannot answer: %s", kv->key, strerror(-r));
}

void requests_answer(Etcd *etcd, const EtcdKeyValue *kv, const char *text)
{
    RequestRecord request;
    Error err = ERROR_INIT;
    if (request_record_decode(kv->key, kv->value, kv->n_value, &request, &err) < 0) {
        log_error("%s", err.text);
        return;
    }
    answer(etcd, kv, &request, REQUEST_DONE, text);
    request_record_clear(&request);
}

void requests_on_event(const Requests *requests, const EtcdEvent *event)
{
    RequestRecord request;
    Error err = ERROR_INIT;
    if (event->kind == ETCD_EVENT_DELETE)
        return;
    if (request_record_decode(event->kv.key, event->kv.value, event->kv.n_value, &request, &err) <
        0) {
        log_error("%s", err.text);
        return;
    }

    bool check = strcmp(request.kind, "check") == 0, clear = strcmp(request.kind, "clear") == 0;
    bool here =
        strcmp(request.target, requests->config->node) == 0 &&
        (!*request.machine_id || strcmp(request.machine_id, requests->config->machine_id) == 0);
    if ((check || clear) && !*request.answer && here)
        requests->check(requests->userdata, &event->kv, clear);
    if (strcmp(request.kind, "doctor") == 0 && (!*request.target || here))
        requests->doctor(requests->userdata, &request);
    LocalJob *job = !*request.answer && strcmp(request.kind, "checkpoint") == 0
                        ? job_find(requests->workload, request.target)
                        : NULL;
    bool meant = job && job->local &&
                 (!*request.submission || strcmp(request.submission, job->local->submission) == 0);
    LocalRank *local_rank =
        meant ? local_world_rank0(job->local) : NULL; /* NULL: another node or the leader answers */
    Rank *rank = local_rank ? slots_rank_of(job->local, local_rank) : NULL;
    if (rank && rank->has_gone) {
        ChannelMessage save = {.type = CHANNEL_CHECKPOINT, .generation = job->local->generation};
        rank_send(rank, &save);
        log_info("rank 0 is asked for a checkpoint JOB=%s", job->name);
        answer(requests->etcd, &event->kv, &request, REQUEST_DONE,
               "rank 0 saves after its present step");
    } else if (local_rank) {
        answer(requests->etcd, &event->kv, &request, REQUEST_REFUSED,
               "refused: the job does not train now");
    }
    request_record_clear(&request);
}
