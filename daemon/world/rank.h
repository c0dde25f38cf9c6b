/* rank.h - one trainer process in one slot, from spawn to confirmed death.
 *
 * Ownership: the Manager's slot owns its Rank; rank_free() only after death was confirmed, or when
 *            the daemon itself ends.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -errno from starting; afterwards everything is reported through the local world.
 * Threads:   loop thread only.
 * Invariant: a slot is clear when nothing of its rank lives: its cgroup is not populated, or its
 *            process group and every process handed to us with its mark are gone. The end of the
 *            trainer alone does not clear it.
 */
#pragma once

#include "daemon/loop/timer.h"
#include "daemon/process/cgroup.h"
#include "daemon/process/logs.h"
#include "daemon/process/orphans.h"
#include "daemon/world/exit.h"
#include "daemon/world/job.h"
#include "daemon/world/watchdog.h"
#include "daemon/world/workload.h"
#include "protocol/channel.h"

enum { RANK_KILL_CONFIRM_MSEC = 2000, RANK_LAST_WORDS_MSEC = 200 };

/* What a trainer process is started with. */
struct RankNeeds {
    sd_event *event; /* its descriptors are watched on it */
    const CgroupBase *cgroups;
    RankSessions *sessions; /* shared with the keeper */
    const int
        *trainer; /* the program, opened; negative: the path of the configuration is executed */
    /* A child of this process that belongs to no rank: the keeper, or a probe. */
    bool (*is_other_child)(void *userdata, pid_t pid);
    void *userdata; /* of is_other_child */
};

struct Rank {
    Workload *workload;
    LocalWorld *local; /* NULL when nobody is left to report to */
    char job[RECORD_JOB_MAX + 1];
    int64_t generation;
    int slot, rank;
    pid_t pid;
    int pidfd, channel, cgroup, cgroup_events;
    sd_event_source *exit_source, *channel_source, *cgroup_source;
    Timer timer;
    RankLog *log;
    Watchdog watchdog;
    LastWords words;
    int64_t joined_step;       /* the first it went to after joining */
    int64_t failed_saves;      /* as the trainer last told, since its start; so is */
    ChannelStoreUse store_use; /* of the checkpoints' store */
    bool said_hello, was_assigned, is_ready, has_gone, was_stopped;
    bool exited;   /* the trainer process is reaped */
    bool killing;  /* SIGKILL was sent on purpose */
    bool lost;     /* SIGKILL did not end it in RANK_KILL_CONFIRM_MSEC */
    char why[160]; /* it was killed */
};

/* Starts the rank of a seat in its slot, which must be clear. */
int rank_start(LocalWorld *local, LocalRank *local_rank, Error *err);
Rank *rank_free(Rank *rank);
/* Frees a rank of which nothing lives, with what marked its slot: the session and the cgroup. */
void rank_retire(Rank *rank);

/* -EAGAIN and -EPIPE kill the rank, except for alive messages. */
void rank_send(Rank *rank, ChannelMessage *message);
void rank_send_alive(Rank *rank, uint64_t alive_usec);

/* SIGKILL to everything of it; idempotent. why must say who decided. */
void rank_kill(Rank *rank, const char *why, ...) _printf_(2, 3);
/* It announced its end: a moment for that, then SIGKILL. */
void rank_expect_exit(Rank *rank);
/* Looks whether the process ended and whether the slot is clear; for SIGCHLD too. */
void rank_look(Rank *rank);
