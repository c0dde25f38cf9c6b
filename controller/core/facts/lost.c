/* SPDX-License-Identifier: Apache-2.0 */
/* lost.c - see lost.h. */
#include "controller/core/facts/lost.h"

Lost lost_by(const Event *ev, bool had, bool older)
{
    if (ev->record)
        return older ? LOST_OLDER : LOST_NOT;
    if (ev->health == RECORD_FOREIGN)
        return LOST_FOREIGN;
    if (ev->health == RECORD_DAMAGED)
        return LOST_DAMAGED;
    return had ? LOST_GONE : LOST_NOT;
}

void lost_write(Text *t, Lost lost, const char *kind, const char *name)
{
    assert(lost >= LOST_NOT && lost <= LOST_FOREIGN);
    static const char words[][40] = {[LOST_NOT] = " is there",
                                     [LOST_GONE] = " was deleted",
                                     [LOST_DAMAGED] = " could not be read",
                                     [LOST_OLDER] = " was older than what is known",
                                     [LOST_FOREIGN] = " is of another version"};
    text_add(t, kind);
    text_add(t, "/");
    text_add(t, name);
    text_add(t, words[lost]);
}

bool lost_is_foreign(const CoreJob *job, char *ret, size_t size)
{
    const char *kind = job->spec_lost == LOST_FOREIGN          ? "specs"
                       : job->desired_lost == LOST_FOREIGN     ? "desired"
                       : job->world_lost == LOST_FOREIGN       ? "worlds"
                       : job->phase_lost == LOST_FOREIGN       ? "phases"
                       : job->checkpoints_lost == LOST_FOREIGN ? "checkpoints"
                                                               : NULL;
    if (!kind)
        return false;
    Text t = text_begin(ret, size);
    lost_write(&t, LOST_FOREIGN, kind, job->name);
    text_add(&t, " than this controller reads: nothing is decided about the job until its version "
                 "leads");
    return true;
}

/* A lost spec cannot be derived: only the person who submitted the job has its file. */
bool lost_is_without_spec(const CoreJob *job, char *ret, size_t size)
{
    if (job->spec_lost != LOST_DAMAGED &&
        (job->spec_stamp.mod ||
         (!job->phase_stamp.mod && !job->world_stamp.mod && !job->desired_stamp.mod)))
        return false;
    Text t = text_begin(ret, size);
    lost_write(&t, job->spec_lost ? job->spec_lost : LOST_GONE, "specs", job->name);
    text_add(&t,
             ", and this leader has not seen it: sdctl job start -f FILE, with the job file as it "
             "was, gives it back; sdctl job delete gives it up");
    return true;
}

bool lost_to_another_version(const CoreJob *job)
{
    char ignored[RECORD_TEXT_MAX + 1];
    return lost_is_foreign(job, ignored, sizeof(ignored));
}

bool lost_hides(const CoreJob *job)
{
    char ignored[RECORD_TEXT_MAX + 1];
    return lost_is_foreign(job, ignored, sizeof(ignored)) ||
           lost_is_without_spec(job, ignored, sizeof(ignored));
}

bool lost_is_older_world(const CoreJob *job, const WorldRecord *world)
{
    return world->generation < job->world.generation &&
           text_equal(world->submission, job->world.submission);
}

bool lost_with_its_job(const CoreJob *job, const char *submission)
{
    if (job->facts.n_grains == 0)
        return false; /* the job's spec was never read, so its submission is not known */
    return job->spec_stamp.mod && !text_equal(submission, job->facts.submission);
}

bool world_is_lost(const CoreJob *job, Failure *ret)
{
    Lost lost = job->world_lost;
    if (!lost && job->world_stamp.mod == 0)
        lost = LOST_GONE;
    if (!lost && (job->world.generation < job->phase.generation ||
                  job->world.generation < job->ran_generation))
        lost = LOST_OLDER;
    bool other = !lost && job->world.generation > job->phase.generation;
    if (!lost && !other)
        return false;
    *ret = (Failure){.cause = CAUSE_WORLD_LOST, .node = -1, .rank = -1};
    Text t = text_begin(ret->evidence, sizeof(ret->evidence));
    lost_write(&t, lost ? lost : LOST_OLDER, lost ? "worlds" : "phases", job->name);
    return true;
}
