/* probes.h - runs the health probes, all at once, each in a child that can be killed; keeps what
 * they must remember; judges; answers requests for a check.
 *
 * A node registers when its first round is over: a GPU that is missing is known before any rank is
 * placed. answers[] is what metrics, records and people read.
 *
 * Ownership: part of the Manager.
 * Units:     *_usec as verdict.h and records.h say.
 * Errors:    a probe that cannot run is an answer (verdict.h), not an error.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "daemon/config/config.h"
#include "daemon/health/kernel-watch.h"
#include "daemon/loop/timer.h"
#include "daemon/world/slots.h"
#include "etcd/etcd.h"
#include "health/gpus.h"
#include "health/verdict.h"

#include <sys/types.h>
#include <systemd/sd-event.h>

typedef struct Probes Probes;

enum { PROBE_ASKS_MAX = 8 };

typedef struct ProbeChild {
    Probes *probes;
    pid_t pid; /* 0: no child; one that survives SIGKILL keeps its place, and its probe hangs */
    int pidfd, output;
    bool killed;    /* its time was over */
    bool is_waited; /* the round waits for it */
    uint64_t began_usec;
    json_t *state; /* what it left; NULL: nothing */
    sd_event_source *exit_source;
    Timer timer;
} ProbeChild;

/* Somebody who waits for a round that began after he asked. */
typedef struct ProbeAsk {
    char key[KEY_MAX];
    int64_t revision;
    char *text; /* the record as it lies there; owned */
    bool is_served;
} ProbeAsk;

typedef struct ProbesNeeds {
    const DaemonConfig *config;
    sd_event *event;
    const Timers *timers;
    Etcd *etcd;
    const char *boot_id;
    const Slots *slots; /* a probe leaves a slot alone that is busy */

    void *userdata; /* of the calls below */
    void (*began)(void *userdata, const char *probe);
    /* outcome: "answered", "failed" or "hung" */
    void (*ended)(void *userdata, const char *probe, HealthLevel level, const char *outcome);
    void (*judged)(void *userdata, NodeVerdict verdict, uint64_t bad_slots, const char *evidence);
    /* Answers the request that kv holds. */
    void (*answer)(void *userdata, const EtcdKeyValue *kv, const char *text);
    /* After probes_leave(): health/<node> is put, or could not be. */
    void (*record_settled)(void *userdata);
} ProbesNeeds;

struct Probes {
    ProbesNeeds needs;
    KernelWatch kernel;
    ProbeAnswer
        answers[PROBES_MAX]; /* of each probe, in probe_list()'s order; then the kernel's log */
    size_t n_answers;
    Verdict verdict;
    uint64_t verdict_since_usec; /* realtime */
    NodeVerdict node_verdict;    /* the verdict's level, as records say it */
    char evidence[RECORD_TEXT_MAX + 1];
    char cure[96];
    bool is_ready; /* the first round is over */

    ProbeChild children[PROBES_MAX];
    int n_waited; /* children that the round waits for */
    Gpus gpus;    /* slot by place */
    ProbeAsk asks[PROBE_ASKS_MAX];
    size_t n_asks;
    uint64_t posted_usec; /* when health/<node> was last put; 0: never */
    bool is_posted;       /* it holds what is known, but for the ages */
    Hash posted;          /* of what it holds */
    EtcdCall *post;
    Timer timer;
    bool leaving; /* probes_leave() was called: no round begins any more */
};

void probes_init(Probes *p, const ProbesNeeds *needs);
void probes_start(Probes *p); /* the first round at once */
void probes_clear(Probes *probes);
/* The node takes leave: health/<node> says so, and stays. */
void probes_leave(Probes *p);
bool probes_own(const Probes *probes, pid_t pid);

/* What the kernel's log says now. */
void probes_note_kernel(Probes *p, const ProbeResult *result);
/* requests/<id> of kind check or clear, not answered yet; kv is copied. */
void probes_ask(Probes *p, const EtcdKeyValue *kv, bool clear);

/* sdtraind --probe NAME: runs it here and prints what it found, with what the environment's
 * SDTRAIN_PROBE holds as context, or else what the configuration says. */
bool probes_is_child(void);
int probes_run_one(const DaemonConfig *config, const char *name, Error *err);
