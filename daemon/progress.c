/* progress.c - see progress.h. */
#include "daemon/progress.h"

#include "base/clock.h"
#include "daemon/job.h"
#include "daemon/manager.h"

static int progress_encode(Team *team, char **ret)
{
    return progress_record_encode(&team->progress.record, NULL, ret);
}

void progress_init(Progress *progress, Team *team)
{
    *progress = (Progress){0};
    post_init(&progress->post, team, false, progress_encode, NULL);
    (void)key_of(team->job->manager->config.cluster, KEY_PROGRESS, team->job->name,
                 progress->post.key);
}

void progress_clear(Progress *progress)
{
    progress->timer = sd_event_source_disable_unref(progress->timer);
    post_clear(&progress->post);
}

static void progress_send(Progress *progress)
{
    progress->sent_usec = clock_boottime_usec();
    post_send(&progress->post);
}

static int on_due(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Progress *progress = userdata;
    progress->timer = sd_event_source_disable_unref(progress->timer);
    progress_send(progress);
    return 0;
}

void progress_note(Progress *progress, const ChannelMessage *step)
{
    progress->record = (ProgressRecord){.generation = progress->post.team->generation,
                                        .step = step->step,
                                        .steps = step->steps,
                                        .loss = step->loss,
                                        .samples_per_sec = step->samples_per_sec,
                                        .step_sec = step->step_sec,
                                        .samples_seen = step->samples_seen,
                                        .at_usec = clock_realtime_usec()};
    uint64_t since_usec = clock_boottime_usec() - progress->sent_usec;
    bool is_last = step->step >= step->steps; /* nothing would bring it later */
    if (is_last || progress->sent_usec == 0 || since_usec >= USEC_PER_SEC) {
        progress->timer = sd_event_source_disable_unref(progress->timer);
        progress_send(progress);
    } else if (!progress->timer) {
        manager_add_timer(progress->post.team->job->manager, USEC_PER_SEC - since_usec, on_due,
                          progress, &progress->timer);
    }
}
