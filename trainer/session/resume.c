/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c - see resume.h. */
#include "trainer/session/resume.h"

#include "base/log.h"
#include "trainer/session/agreement.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/folder-lock.h"
#include "trainer/session/initial-state.h"

#include <string.h>

/* Finds out whether the manifest's folder is the job's own folder under another path (a link or another mount). If so,
 * the manifest can also be read through the job's own path. */
static int look_for_alias(Session *s, const char *resume_uri, Error *err)
{
    _cleanup_free_ char *folder = strdup(resume_uri);
    if (!folder)
        return error_set(err, -ENOMEM, "out of memory");
    *strrchr(folder, '/') = '\0'; /* manifest_read_uri() has checked that both slashes exist */
    const char *name = strrchr(folder, '/') + 1;
    const Hash hash = manifest_hash(s->resume);
    _cleanup_(manifest_freep) Manifest *same = NULL;
    Error why = ERROR_INIT;
    int r = manifest_read(s->store, name, &hash, &same, &why);
    s->resumes_own = r == 0;
    return r == 0 || r == -ENOENT || r == -EBADMSG ? 0 : error_set(err, r, "%s", why.text);
}

int session_open_resume(Session *s, const SessionAssignment *a, Error *err)
{
    const char *local_dir = s->job->checkpoint.local_dir, *uri = a->assign->resume_uri;
    const Hash *hash = a->assign->adopt ? NULL : &a->assign->resume_hash; /* NULL: not checked */
    int r = store_open(s->job->checkpoint.uri, &s->store, err);
    if (r < 0)
        return error_set_exit(err, error_prefix(err, r, "%s: checkpoint.uri", a->job_source),
                              exit_code_of_store(r));
    if (local_dir)
        r = checkpoint_local_new(local_dir, (uint64_t)s->job->checkpoint.local_bytes,
                                 store_uri(s->store), &s->local, err);
    if (r < 0)
        return r;
    if (!*uri)
        return 0;

    r = manifest_read_uri(uri, hash, &s->resume_store, &s->resume, err);
    if (r == 0) {
        s->resumes_own = strcmp(store_uri(s->resume_store), store_uri(s->store)) == 0;
        if (!s->resumes_own)
            r = look_for_alias(s, uri, err);
    }
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    /* the manifest is a commit, which must be under checkpoint.uri */
    if (hash && !session_resumes_own(s)) {
        r = error_set(err, -EBADMSG,
                      "%s is recorded as this job's checkpoint, but is not under checkpoint.uri %s",
                      uri, store_uri(s->store));
        return error_set_exit(err, r, EXIT_DATA_CORRUPT);
    }
    return 0;
}

/* Finds the next checkpoint. Each checkpoint that the search passes over is logged once, with its reason. */
static int find_next(Session *s, Error *err)
{
    const CheckpointPassed *passed;
    s->resume = manifest_free(s->resume);
    int r = checkpoint_search_next(s->search, &s->resume, err);
    const size_t n_passed = checkpoint_search_passed(s->search, &passed);
    for (; s->n_left_aside < MIN(n_passed, (size_t)CHECKPOINT_PASSED_MAX); s->n_left_aside++)
        log_warning("checkpoint %s is left aside: %s", passed[s->n_left_aside].folder,
                    passed[s->n_left_aside].why.text);
    if (r > 0)
        log_info("goes on from step %lld, the newest checkpoint that verifies STEP=%lld",
                 (long long)manifest_step(s->resume), (long long)manifest_step(s->resume));
    else if (r == 0 && n_passed > 0)
        /* the run must not start at step 0 beside checkpoints */
        r = checkpoint_search_failed(s->search, err);
    return error_set_exit(err, MIN(r, 0), exit_code_of_store(r));
}

/* A run whose lock is free has ended, so this run takes its folder over. Without locks only the operator knows whether
 * the run has ended. */
int session_lock_folder(Session *s, bool make, Error *err)
{
    Error said = ERROR_INIT;
    if (!s->claim.alone || s->folder_lock >= 0)
        return 0;
    int fd = folder_lock_take(store_uri(s->store), make, &said);
    if (fd == -ENOENT && !make)
        return 0; /* no folder is made yet, since the job may turn out to be invalid */
    if (fd < 0 && fd != -EOPNOTSUPP)
        return error_set(err, fd, "%s", said.text);
    s->folder_lock = fd;
    if (fd >= 0 && s->claim.takes == OWNER_TAKES_NONE)
        s->claim.takes = OWNER_TAKES_ALONE;
    return 0;
}

int session_find_resume(Session *s, Error *err)
{
    int r = session_lock_folder(s, false, err);
    if (r == -CHECKPOINT_NOT_OWNER)
        return error_set_exit(err, r, EXIT_NOT_OWNER);
    if (r == 0)
        r = store_open(s->job->checkpoint.uri, &s->resume_store, err);
    if (r == 0)
        r = checkpoint_search_new(s->resume_store, &s->facts, &s->search, err);
    if (r == 0)
        r = find_next(s, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    s->resumes_own = true;
    if (s->generation == 0)
        s->facts.generation = s->generation = checkpoint_search_generation(s->search) + 1;
    return 0;
}

bool session_resumes_own(const Session *s) { return s->resume && s->resumes_own; }

int session_pass_over(Session *s, int r, Error *err)
{
    if (!s->search || !s->resume || (r != -EBADMSG && r != -EIO))
        return r;
    checkpoint_search_reject(s->search, err);
    return find_next(s, err);
}

int session_restore(Session *s, Error *err)
{
    for (;;) {
        int r = 0;
        daemon_link_stage(s->link, s->resume ? manifest_step(s->resume) : 0, STAGE_RESTORING);
        if (s->resume)
            r = session_check_resumed(s, err);
        if (r < 0)
            return error_set_exit(err, r, EXIT_NUMERICS);
        r = init_state(s->job, s->resume_store, session_resumes_own(s) ? s->local : NULL, s->resume,
                       s->state, err);
        if (r == 0)
            return 0;
        if (device_exit_blames(s->device, &r, err))
            return r; /* this error does not show that the checkpoint is bad */
        r = session_pass_over(s, r, err);
        if (r < 0)
            return r;
    }
}
