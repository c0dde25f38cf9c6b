/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - see progress.h. */
#include "daemon/world/progress.h"

#include "base/clock.h"
#include "daemon/world/job.h"
#include "daemon/world/workload.h"

#include <math.h>

static char *progress_encode(LocalWorld *local)
{
    assert(local->progress.record.generation == local->generation);
    return progress_record_encode(&local->progress.record, NULL);
}

void progress_init(Progress *progress, LocalWorld *local)
{
    *progress = (Progress){0};
    record_writer_init(&progress->writer, local, false, progress_encode, NULL);
    (void)key_of(local->job->workload->needs.config->cluster, KEY_PROGRESS, local->job->name,
                 progress->writer.key);
    record_writer_doubt(&progress->writer); /* the world before may have written the record */
}

void progress_clear(Progress *progress)
{
    timer_stop(&progress->timer);
    record_writer_clear(&progress->writer);
}

static void progress_send(Progress *progress)
{
    assert(!progress->writer.local->over && !timer_runs(&progress->timer));
    progress->sent_usec = clock_boottime_usec();
    record_writer_send(&progress->writer);
}

static void on_due(void *userdata)
{
    Progress *progress = userdata;
    progress_send(progress);
}

static void send_soon(Progress *progress)
{
    uint64_t since_usec = clock_boottime_usec() - progress->sent_usec;
    if (progress->sent_usec == 0 || since_usec >= USEC_PER_SEC) {
        timer_stop(&progress->timer);
        progress_send(progress);
    } else if (!timer_runs(&progress->timer)) {
        timer_start(progress->writer.local->job->workload->needs.timers, &progress->timer,
                    USEC_PER_SEC - since_usec, on_due, progress);
    }
}

/* Converts a time that a trainer of this host gave in boottime to realtime, because other machines read the record.
 * 0 stays 0. */
static uint64_t realtime_of(uint64_t usec)
{
    uint64_t now_usec = clock_boottime_usec();
    return usec == 0 ? 0 : clock_realtime_usec() - (now_usec - MIN(usec, now_usec));
}

void progress_note(Progress *progress, const ChannelMessage *step)
{
    ProgressRecord *record = &progress->record;
    bool was_unsaved = record->unsaved_since_usec != 0;
    bool is_last = step->step >= step->steps; /* no later step would write it */
    uint64_t unsaved_usec = was_unsaved && step->unsaved_since_usec
                                ? record->unsaved_since_usec /* converted only once: clocks drift */
                                : realtime_of(step->unsaved_since_usec);
    *record = (ProgressRecord){.generation = progress->writer.local->generation,
                               .step = step->step,
                               .steps = step->steps,
                               .loss = step->loss,
                               .grad_norm = step->grad_norm,
                               .lr = step->lr,
                               .samples_per_sec = step->samples_per_sec,
                               .step_sec = step->step_sec,
                               .saving_sec = step->saving_sec,
                               .samples_seen = step->samples_seen,
                               .at_usec = clock_realtime_usec(),
                               .unsaved_since_usec = unsaved_usec,
                               .save_next_bytes = step->save_next_bytes,
                               .save_free_bytes = step->save_free_bytes,
                               .diverging_since = step->diverging_since,
                               .metrics_lost = step->metrics_lost,
                               .metrics_lost_first = step->metrics_lost_first,
                               .metrics_lost_last = step->metrics_lost_last,
                               .committed = record->committed};
    (void)snprintf(record->save_error, sizeof(record->save_error), "%s", step->save_error);
    (void)snprintf(record->diverging, sizeof(record->diverging), "%s", step->diverging);
    if (is_last) {
        timer_stop(&progress->timer);
        progress_send(progress);
    } else {
        send_soon(progress);
    }
}

void progress_note_wait(Progress *progress, const ChannelMessage *stage)
{
    ProgressRecord *record = &progress->record;
    bool saves = stage->stage == STAGE_SAVING;
    bool is_reported = saves ? record->unsaved_since_usec != 0
                             : record->waits_since_usec && record->waits_rank == stage->waits_rank;
    if (is_reported)
        return;
    if (record->generation == 0) /* before the first step of this world */
        *record = (ProgressRecord){.generation = progress->writer.local->generation,
                                   .step = stage->step,
                                   .loss = NAN,
                                   .committed = record->committed};
    uint64_t since_usec = realtime_of(clock_boottime_usec() - stage->waited_usec);
    if (saves) {
        record->unsaved_since_usec = since_usec;
        (void)snprintf(record->save_error, sizeof(record->save_error),
                       "all ranks wait for the save of step %lld", (long long)stage->step);
    } else {
        record->waits_since_usec = since_usec;
        record->waits_rank = stage->waits_rank;
    }
    record->at_usec = clock_realtime_usec();
    send_soon(progress);
}
