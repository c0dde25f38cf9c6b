/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint-search.c - see checkpoint-search.h. */
#include "trainer/session/checkpoint-search.h"

#include "base/clock.h"
#include "base/log.h"
#include "protocol/exit-code.h"
#include "trainer/checkpoint/search.h"

#include <string.h>

enum {
    HISTORY_MAX = 16, /* number of commits that the record holds */
    VERDICT_SEC = 600,
};

static int report_one(DaemonLink *link, Store *store, const Manifest *m, int64_t generation,
                      bool more, Error *err)
{
    ChannelMessage found = {.type = CHANNEL_FOUND,
                            .generation = generation,
                            .step = manifest_step(m),
                            .made_by = manifest_facts(m)->generation,
                            .hash = manifest_hash(m),
                            .digest = manifest_digest(m),
                            .more = more};
    char folder[CHECKPOINT_FOLDER_MAX];
    const ObjectRecord *objects;
    const size_t n_objects = manifest_objects(m, &objects);
    /* the plans are the last object if there are any */
    if (objects[n_objects - 1].kind == OBJECT_PLANS)
        (void)hash_format(objects[n_objects - 1].hash, found.plans);
    manifest_folder(m, folder);
    int n = snprintf(found.uri, sizeof(found.uri), "%s/%s/manifest.json", store_uri(store), folder);
    if (n >= (int)sizeof(found.uri))
        return error_set(err, -ENAMETOOLONG, "checkpoint.uri: %s is too long", store_uri(store));
    return daemon_link_report(link, &found, err);
}

/* Reports the history, oldest first: the newest checkpoint, and the checkpoints before it that can still be read. */
static int report_all(DaemonLink *link, Store *store, const Manifest *newest, int64_t generation,
                      Error *err)
{
    const size_t n = manifest_committed(newest, NULL, 0);
    char(*folders)[CHECKPOINT_FOLDER_MAX] = calloc(n + 1, sizeof(*folders));
    if (!folders)
        return error_set(err, -ENOMEM, "out of memory");
    (void)manifest_committed(newest, folders, n);
    int r = 0;
    for (size_t i = n - MIN(n, (size_t)HISTORY_MAX - 1); r == 0 && i < n; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        Error why = ERROR_INIT;
        if (manifest_read(store, folders[i], NULL, &m, &why) < 0)
            log_info("%s is not there any more: %s", folders[i], why.text);
        else
            r = report_one(link, store, m, generation, true, err);
    }
    free(folders);
    return r < 0 ? r : report_one(link, store, newest, generation, false, err);
}

static int find_newest(Store *store, const CheckpointFacts *own, bool must, Manifest **ret,
                       Error *err)
{
    const CheckpointPassed *passed;
    _cleanup_(checkpoint_search_freep) CheckpointSearch *search = NULL;
    int r = checkpoint_search_new(store, own, &search, err);
    if (r == 0)
        r = checkpoint_search_next(search, ret, err);
    if (r < 0)
        return r;
    const size_t n = checkpoint_search_passed(search, &passed);
    for (size_t i = 0; i < MIN(n, (size_t)CHECKPOINT_PASSED_MAX); i++)
        log_warning("checkpoint %s is left aside: %s", passed[i].folder, passed[i].why.text);
    if (r > 0 || !must)
        return r;
    if (n == 0)
        return error_set(err, -EBADMSG,
                         "checkpoint.uri: %s holds no checkpoint, and this job has committed some",
                         store_uri(store));
    /* sets a text with the checkpoints and why each was rejected */
    (void)checkpoint_search_failed(search, err);
    return error_prefix(err, -EBADMSG, "checkpoint.uri");
}

int checkpoint_search_report(DaemonLink *link, Store *store, const CheckpointFacts *own, bool must,
                             Error *err)
{
    _cleanup_(manifest_freep) Manifest *newest = NULL;
    daemon_link_stage(link, 0, STAGE_RESTORING);
    int r = find_newest(store, own, must, &newest, err);
    if (!must && (r == -EACCES || r == -EPERM || r == -ENOTDIR)) {
        /* This job has committed no checkpoint, so none is lost, and the first save reports the same error. */
        log_warning("%s", err->text);
        return 0;
    }
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    if (r == 0 || (!must && manifest_step(newest) == 0))
        return 0; /* continuing from step 0 gains nothing */

    const int64_t step = manifest_step(newest);
    log_info("found the checkpoint of step %lld STEP=%lld", (long long)step, (long long)step);
    r = report_all(link, store, newest, own->generation, err);
    if (r < 0)
        return r;
    DaemonVerdict verdict;
    r = daemon_link_wait_verdict(link, step, VERDICT_SEC * USEC_PER_SEC, &verdict, err);
    return r < 0
               ? r
               : error_set(err, -ESTALE,
                           "the checkpoint of step %lld was found: the next world goes on from it",
                           (long long)step);
}
