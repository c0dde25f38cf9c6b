/* SPDX-License-Identifier: Apache-2.0 */
/* saver.c - see saver.h. */
#include "trainer/saver.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/number/hash.h"
#include "base/probe.h"
#include "protocol/exit-code.h"

#include <pwd.h>
#include <string.h>
#include <unistd.h>

enum {
    WRITE_TIMEOUT_SEC = 1800, /* longest upload that is waited for */
    /* longest wait for a verdict: etcd may lack a quorum for long; training waits only if a save is required */
    VERDICT_TIMEOUT_SEC = 1800,
    TRIES = 3,
    REFUSED_TRIES = 6, /* tries in 60 s, if the store refuses and nothing was ever committed */
    RETRY_SEC = 2,     /* pause before the second try; doubles up to RETRY_MAX_SEC */
    RETRY_MAX_SEC = 30,
    CATCH_UP_SEC = 1, /* pause after a failed periodic save; doubles with each failure */
    CATCH_UP_MAX_SEC = 60,
    WAIT_SLICE_MSEC = 500, /* period of the reports of ranks that wait for a save */
    /* A save is overdue after OVERDUE_SEC or after OVERDUE_TIMES times the duration of the last save, whichever is
     * longer. */
    OVERDUE_SEC = 30,
    OVERDUE_TIMES = 4,
    OVERDUE_FIRST_SEC = 300,
    LINE_BYTES = 320,
};

struct Saver {
    Session *session;
    char *lines; /* rank 0: metrics of steps (committed_step, newest_step] */
    size_t n_lines_bytes, size;
    int64_t committed_step, newest_step;
    int64_t saving_step;      /* step of the save in flight */
    bool awaiting;            /* rank 0: `saved` is sent, and not answered yet */
    CheckpointResult written; /* the newest save that was written */
    uint64_t begun_usec;      /* when the newest save began */
    uint64_t written_usec;    /* when the newest written save was written */
    SaverTrouble trouble;
    /* from this time on a save is due at any step; 0: a save is due only at its regular step */
    uint64_t catch_up_usec;
    uint64_t pause_usec;   /* pause before the next save after a failure */
    bool has_committed;    /* this process has committed a save */
    bool asked;            /* rank 0: a save was requested, and none has begun since */
    bool said_short;       /* rank 0: the log already says that the next save lacks space */
    Divergence divergence; /* used only on rank 0 */
    StepTimes step_times;  /* used only on rank 0 */
};

int saver_new(Session *session, Saver **ret, Error *err)
{
    Saver *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->session = session;
    s->committed_step = s->newest_step = session->state->scalars.step;
    if (session->resume) {
        s->written.step = manifest_step(session->resume);
        s->written.digest = manifest_digest(session->resume);
    }
    /* a manifest of an older version has no divergence and no step times, which then begin empty */
    if (session_resumes_own(session)) {
        (void)divergence_parse(manifest_divergence(session->resume), &s->divergence);
        (void)step_times_parse(manifest_step_times(session->resume), &s->step_times);
    }
    *ret = s;
    return 0;
}

Saver *saver_free(Saver *saver)
{
    if (saver) {
        free(saver->lines);
        free(saver);
    }
    return NULL;
}

Hash saver_digest(const Saver *saver) { return saver->written.digest; }

const SaverTrouble *saver_trouble(const Saver *saver) { return &saver->trouble; }

const Divergence *saver_divergence(const Saver *saver) { return &saver->divergence; }

void saver_gap(const Saver *saver, MetricsGap *ret) { checkpoint_gap(saver->session->writer, ret); }

void saver_room(Saver *saver, CheckpointRoom *ret)
{
    checkpoint_room(saver->session->writer, ret);
    const bool is_short = ret->free_bytes < ret->next_bytes;
    if (is_short && !saver->said_short)
        log_warning("%s has %.1f MB free, the next checkpoint has %.1f MB: lower "
                    "checkpoint.keep_last (%lld) or make room there before it is due",
                    store_uri(saver->session->store), (double)ret->free_bytes / 1e6,
                    (double)ret->next_bytes / 1e6,
                    (long long)saver->session->job->checkpoint.keep_last);
    saver->said_short = is_short;
}

const char *saver_uri(const Saver *saver) { return saver->written.uri; }

/* Returns whether the last save failed and the pause after it is over. */
static bool catches_up(const Saver *s)
{
    return s->catch_up_usec > 0 && clock_boottime_usec() >= s->catch_up_usec &&
           !checkpoint_busy(s->session->writer);
}

uint32_t saver_step_flags(Saver *s, int64_t step)
{
    const Job *job = s->session->job;
    assert(s->session->rank == 0 && step > s->committed_step);
    unsigned wishes = daemon_link_wishes(s->session->link, true);

    s->asked |= (wishes & WISH_SAVE) != 0;
    if (wishes & WISH_LEAVE)
        return STEP_SAVE | STEP_MUST | STEP_LEAVE;
    if (step == job->train.steps)
        return STEP_SAVE | STEP_MUST;
    if (job->checkpoint.keep_every > 0 && step % job->checkpoint.keep_every == 0)
        return STEP_SAVE | STEP_MUST;
    const bool due = step % job->checkpoint.every_steps == 0;
    if (!due && !s->asked && !catches_up(s))
        return STEP_NONE;
    if (s->awaiting || checkpoint_busy(s->session->writer)) {
        if (due) /* a requested save waits, without a warning */
            log_warning("step %lld is not saved: the save of step %lld is still in flight",
                        (long long)step, (long long)s->saving_step);
        return STEP_NONE;
    }
    return STEP_SAVE;
}

int saver_record(Saver *s, int64_t step, const UpdateResult *result, int64_t samples_seen,
                 uint64_t took_usec, Error *err)
{
    if (s->size - s->n_lines_bytes < LINE_BYTES) {
        size_t size = MAX(2 * s->size, (size_t)64 * LINE_BYTES);
        char *lines = realloc(s->lines, size);
        if (!lines)
            return error_set(err, -ENOMEM, "out of memory for the metrics");
        s->lines = lines;
        s->size = size;
    }
    /* there is one line per step, in order: drop_lines() counts lines */
    assert(step > s->newest_step);
    int n =
        snprintf(s->lines + s->n_lines_bytes, LINE_BYTES,
                 "{\"step\":%lld,\"loss\":%.9g,\"loss_hex\":\"%a\",\"lr\":%.9g,\"grad_norm\":%.9g,"
                 "\"samples_seen\":%lld%s}\n",
                 (long long)step, result->loss, result->loss, result->lr, result->gradient_norm,
                 (long long)samples_seen, result->redone ? ",\"redone\":true" : "");
    assert(n > 0 && n < LINE_BYTES);
    s->n_lines_bytes += (size_t)n;
    s->newest_step = step;
    divergence_add(&s->divergence, step, result->loss, result->gradient_norm);
    step_times_add(&s->step_times, step, took_usec);
    return 0;
}

/* Drops the lines up to `step`, which are part of a committed segment. */
static void drop_lines(Saver *s, int64_t step)
{
    char *end = s->lines;
    assert(step >= s->committed_step);
    for (int64_t k = s->committed_step; k < step && end; k++) {
        char *newline = memchr(end, '\n', (size_t)(s->lines + s->n_lines_bytes - end));
        assert(newline);
        end = newline + 1;
    }
    if (end) {
        s->n_lines_bytes -= (size_t)(end - s->lines);
        memmove(s->lines, end, s->n_lines_bytes);
        s->lines[s->n_lines_bytes] = '\0';
    }
    s->committed_step = step;
}

/* Adds the time that the update after the save waited for the save's copies. */
static void count_wait(const Saver *s, CheckpointResult *result)
{
    if (!s->session->job->checkpoint.blocking)
        result->blocked_usec += train_state_waited_usec(s->session->state);
}

/* Notes what the result of a finished save means for the next save. */
static void note_result(Saver *s, const CheckpointResult *result)
{
    if (result->phase == CHECKPOINT_WRITTEN || result->phase == CHECKPOINT_FAILED)
        PROBE(save, result->step, result->error.code, result->write_usec, result->blocked_usec,
              result->n_bytes);
    if (result->phase == CHECKPOINT_WRITTEN) {
        if (s->trouble.since_usec > 0)
            log_info("checkpoints can be written again STEP=%lld", (long long)result->step);
        s->trouble.since_usec = s->catch_up_usec = s->pause_usec = 0;
        s->trouble.error = ERROR_INIT;
    }
    if (result->phase != CHECKPOINT_FAILED)
        return;
    s->trouble.n_failed++;
    s->trouble.since_usec = s->trouble.since_usec ?: s->begun_usec;
    s->trouble.error = result->error;
    s->pause_usec =
        MIN(MAX(2 * s->pause_usec, CATCH_UP_SEC * USEC_PER_SEC), CATCH_UP_MAX_SEC * USEC_PER_SEC);
    s->catch_up_usec = clock_boottime_usec() + s->pause_usec;
}

static ChannelStoreUse use_of_stores(const Session *session)
{
    StoreUse own = {0}, resumed = {0};
    store_use(session->store, &own);
    if (session->resume_store)
        store_use(session->resume_store, &resumed);
    return (ChannelStoreUse){.puts = (int64_t)own.puts,
                             .gets = (int64_t)(own.gets + resumed.gets),
                             .put_sec = (double)own.put_usec * 1e-6,
                             .get_sec = (double)(own.get_usec + resumed.get_usec) * 1e-6};
}

/* Rank 0: reports a written manifest to the daemon. */
static int announce(Saver *s, const CheckpointResult *result, Error *err)
{
    assert(result->phase == CHECKPOINT_WRITTEN && result->step == s->saving_step && !s->awaiting);
    s->written = *result;
    s->written_usec = clock_boottime_usec();
    if (s->session->rank != 0)
        return 0;
    ChannelMessage m = {.type = CHANNEL_SAVED,
                        .generation = s->session->generation,
                        .step = result->step,
                        .hash = result->hash,
                        .digest = result->digest,
                        .write_sec = (double)result->write_usec * 1e-6,
                        .blocked_sec = (double)result->blocked_usec * 1e-6,
                        .saved_bytes = (int64_t)result->n_bytes,
                        .store = use_of_stores(s->session)};
    (void)snprintf(m.uri, sizeof(m.uri), "%s", result->uri);
    const char *plans = s->session->plans;
    if (plans)
        (void)hash_format(hash_bytes(plans, strlen(plans)), m.plans);
    s->awaiting = true;
    log_info("step %lld is written: blocked %.1f ms, wrote %.1f ms STEP=%lld",
             (long long)result->step, (double)result->blocked_usec / 1e3,
             (double)result->write_usec / 1e3, (long long)result->step);
    int r = fault("saver.saved");
    return r < 0 ? r : daemon_link_report(s->session->link, &m, err);
}

static int settle(Saver *s, DaemonVerdict verdict, Error *err)
{
    assert(s->awaiting && verdict != VERDICT_PENDING && s->session->rank == 0);
    s->awaiting = false;
    session_hold(s->session);
    checkpoint_settle(s->session->writer, verdict == VERDICT_COMMITTED);
    if (verdict != VERDICT_COMMITTED)
        return error_set(err, -ESTALE,
                         "the checkpoint of step %lld was refused: this world is over",
                         (long long)s->saving_step);
    s->has_committed = true;
    drop_lines(s, s->saving_step);
    return 0;
}

/* Notes that the writer is busy much longer than usual: with a save or, after the save is written, with the removal of
 * old checkpoints. Both delay the next save, which begins as soon as the writer is free. */
static void note_overdue(Saver *s)
{
    bool removes = s->written.step == s->saving_step;
    uint64_t began_usec = removes ? s->written_usec : s->begun_usec;
    uint64_t usual_usec = s->written.write_usec, now_usec = clock_boottime_usec();
    uint64_t most_usec = usual_usec ? MAX(OVERDUE_SEC * USEC_PER_SEC, OVERDUE_TIMES * usual_usec)
                                    : OVERDUE_FIRST_SEC * USEC_PER_SEC;
    if (s->trouble.since_usec || !checkpoint_busy(s->session->writer) ||
        now_usec - began_usec <= most_usec)
        return;
    s->trouble.since_usec = began_usec;
    s->catch_up_usec = now_usec;
    (void)error_set(&s->trouble.error, -EINPROGRESS,
                    "%s step %lld has been under way for more than %llu s",
                    removes ? "the removal of old checkpoints after" : "the save of",
                    (long long)s->saving_step, (unsigned long long)(most_usec / USEC_PER_SEC));
    log_warning("%s STEP=%lld", s->trouble.error.text, (long long)s->saving_step);
}

/* Handles the result of a save that is allowed to fail. */
static int take_result(Saver *s, const CheckpointResult *result, Error *err)
{
    note_result(s, result);
    if (result->phase == CHECKPOINT_FAILED && result->error.code == -CHECKPOINT_NOT_OWNER)
        return error_set(err, result->error.code, "%s", result->error.text);
    if (result->phase == CHECKPOINT_FAILED)
        log_error("the checkpoint of step %lld failed, training goes on: %s STEP=%lld",
                  (long long)result->step, result->error.text, (long long)result->step);
    return result->phase == CHECKPOINT_WRITTEN ? announce(s, result, err) : 0;
}

int saver_pump(Saver *s, Error *err)
{
    CheckpointResult result;
    checkpoint_poll(s->session->writer, &result);
    count_wait(s, &result);
    int r = take_result(s, &result, err);
    if (r < 0)
        return r;
    note_overdue(s);
    if (!s->awaiting)
        return 0;
    DaemonVerdict verdict = daemon_link_verdict(s->session->link, s->saving_step);
    return verdict == VERDICT_PENDING ? 0 : settle(s, verdict, err);
}

/* Waits for the writer. The ranks have nothing else to do at `step`, and report to their daemons that they are
 * alive. */
static int wait_for_writer(Saver *s, int64_t step, CheckpointResult *ret)
{
    const uint64_t began_usec = clock_boottime_usec();
    for (;;) {
        int r = checkpoint_wait(s->session->writer, WAIT_SLICE_MSEC * USEC_PER_MSEC, ret);
        uint64_t waited_usec = clock_boottime_usec() - began_usec;
        if (r == 0)
            count_wait(s, ret);
        if (r != -ETIMEDOUT || waited_usec > WRITE_TIMEOUT_SEC * USEC_PER_SEC)
            return r;
        daemon_link_wait(s->session->link, step, STAGE_SAVING, waited_usec, s->session->rank);
    }
}

static int await_result(Saver *s, int64_t step, CheckpointResult *ret, Error *err)
{
    int r = wait_for_writer(s, step, ret);
    return r < 0 ? error_errno(err, r, "waiting for the checkpoint of step %lld",
                               (long long)s->saving_step)
                 : 0;
}

/* Waits until no save is in flight: the save is written or has failed, and on rank 0 the daemon has answered. */
static int drain(Saver *s, int64_t step, CheckpointPhase *ret_phase, Error *err)
{
    CheckpointResult result;
    int r = await_result(s, step, &result, err);
    if (r < 0)
        return r;
    *ret_phase = result.phase;
    note_result(s, &result);
    if (result.phase == CHECKPOINT_FAILED) {
        log_error("the checkpoint of step %lld failed: %s STEP=%lld", (long long)result.step,
                  result.error.text, (long long)result.step);
        if (err)
            *err = result.error;
        return 0;
    }
    if (result.phase == CHECKPOINT_WRITTEN) {
        r = announce(s, &result, err);
        if (r < 0)
            return r;
    }
    if (!s->awaiting)
        return 0;
    DaemonVerdict verdict;
    r = daemon_link_wait_verdict(s->session->link, s->saving_step,
                                 VERDICT_TIMEOUT_SEC * USEC_PER_SEC, &verdict, err);
    return r < 0 ? r : settle(s, verdict, err);
}

static int begin(Saver *s, int64_t step, Error *err)
{
    assert(!s->awaiting && step >= s->committed_step);
    s->saving_step = step;
    s->asked = false;
    s->begun_usec = clock_boottime_usec();
    bool writes_metrics = s->session->rank == 0;
    if (writes_metrics)
        checkpoint_note_steps(s->session->writer, &s->divergence, &s->step_times);
    return checkpoint_begin(s->session->writer, s->session->state,
                            writes_metrics ? (s->lines ? s->lines : "") : NULL,
                            s->committed_step + 1, step, err);
}

/* Returns how often a required save is tried. All ranks have the same error, and so the same number. */
static int tries_of(const Saver *s, const Error *err, int first_code)
{
    bool never_saved = !s->has_committed && !session_resumes_own(s->session);
    return never_saved && exit_is_refusal(err->code) && err->code == first_code ? REFUSED_TRIES
                                                                                : TRIES;
}

/* Saves once. Training does not wait for the save unless the job says so: then the state does not change until the save
 * is written. In both cases training does not wait for the commit. */
static int save_once(Saver *s, int64_t step, Error *err)
{
    CheckpointResult result;
    int r = begin(s, step, err);
    if (r < 0 || !s->session->job->checkpoint.blocking)
        return r;
    r = await_result(s, step, &result, err);
    return r < 0 ? r : take_result(s, &result, err);
}

/* A folder may refuse all users except the user who made the folder, so the error names the user of this process. */
static int refuse_place(const Saver *s, Error *err)
{
    const struct passwd *user = getpwuid(geteuid());
    if (err->code != -EACCES || strncmp(store_uri(s->session->store), "file://", 7) != 0)
        return error_prefix(err, -ENOTRECOVERABLE, "checkpoint.uri: no checkpoint can be written");
    return error_prefix(err, -ENOTRECOVERABLE,
                        "checkpoint.uri: no checkpoint can be written by user %s (%u), who runs "
                        "the ranks",
                        user ? user->pw_name : "without a name", (unsigned)geteuid());
}

static void wait_before(int try)
{
    if (try > 0 && fault("saver.patience") == 0)
        (void)sleep(
            /* the pause is the same on all ranks; a signal ends the pause */
            MIN(RETRY_SEC << (try - 1), RETRY_MAX_SEC));
}

void saver_end(Saver *s)
{
    Error err = ERROR_INIT;
    int64_t n_missed = 0;
    int r = -EAGAIN;
    assert(s->session->rank == 0);
    for (int try = 0; r < 0 && r != -CHECKPOINT_NOT_OWNER && try < TRIES; try++) {
        wait_before(try);
        r = checkpoint_put_missed(s->session->writer, &n_missed, &err);
    }
    if (n_missed > 0)
        log_error("metrics of %lld steps are lost: %s", (long long)n_missed, err.text);
}

int saver_save(Saver *s, int64_t step, uint32_t flags, Error *err)
{
    daemon_link_stage(s->session->link, step, STAGE_SAVING);
    CheckpointPhase phase = CHECKPOINT_IDLE;
    int r = 0;
    if (!(flags & STEP_MUST)) {
        /* The previous save may have ended by now. Its result is handled here, since a new save would discard the
         * result. */
        r = saver_pump(s, err);
        return r < 0 ? r : save_once(s, step, err);
    }

    r = drain(s, step, &phase, err); /* waits for the end of the save in flight */
    if (r < 0)
        return r;
    int tries = TRIES, first_code = 0;
    for (int try = 0; try < tries; try++) {
        wait_before(try);
        r = begin(s, step, err);
        if (r == 0)
            r = drain(s, step, &phase, err);
        if (r < 0)
            return r;
        if (phase == CHECKPOINT_WRITTEN)
            return 0;
        if (err->code == -ECONNRESET || err->code == -ECANCELED)
            return err->code; /* a peer is lost: another try cannot help */
        if (err->code == -CHECKPOINT_NOT_OWNER)
            return err->code;
        first_code = try == 0 ? err->code : first_code;
        tries = tries_of(s, err, first_code);
    }
    if (tries == REFUSED_TRIES)
        return refuse_place(s, err);
    return error_prefix(err, -EIO, "step %lld could not be saved in %d tries", (long long)step,
                        TRIES);
}
