/* SPDX-License-Identifier: Apache-2.0 */
/* probes.h - runs the health probes of this node, keeps their memory, and judges.
 *
 * A driver that hangs takes along the process that calls it. So the probes run all at once, each in a child of its own
 * that can be killed. A node registers when its first round is over: a GPU that is missing is known before any rank is
 * placed. A cloud's notice leaves two minutes, so where one may come its probe also runs between rounds.
 *
 * Ownership: a value; probes_clear() kills the children. Borrows all its needs, which outlive it.
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
    pid_t pid; /* 0: no child. A child that survives SIGKILL keeps its place, and its probe hangs */
    int pidfd, output;
    bool killed;    /* the child exceeded its time */
    bool is_waited; /* the round waits for it */
    uint64_t began_usec;
    json_t *state; /* the probe's memory: in with its context, out with its result; NULL: none */
    sd_event_source *exit_source;
    Timer timer;
} ProbeChild;

/* A request for a check, answered after a round that began after it. */
typedef struct ProbeRequest {
    char key[KEY_MAX];
    int64_t revision;
    char *text;     /* the record as it lies in etcd; owned */
    bool is_served; /* the round under way began after the request */
} ProbeRequest;

typedef struct ProbesNeeds {
    const DaemonConfig *config;
    sd_event *event;
    const Timers *timers;
    Etcd *etcd;
    const char *boot_id;
    const bool *has_name;   /* health/<node> is this machine's to write */
    const SlotTable *slots; /* a probe does not touch a slot that is busy */

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
    /* The answers of the probes, in probe_list()'s order, and of the kernel's log, which is last. */
    ProbeAnswer answers[PROBES_MAX];
    size_t n_answers;
    Verdict verdict;
    uint64_t verdict_since_usec; /* realtime; when the verdict last changed; 0: none yet */
    NodeVerdict node_verdict;    /* the verdict's level, as records say it */
    char evidence[RECORD_TEXT_MAX + 1];
    char cure[96]; /* of the worst answer; "": none is needed */
    bool is_ready; /* the first round is over */

    ProbeChild children[PROBES_MAX];
    int n_waited;       /* children that the round waits for */
    bool is_full;       /* the round under way, or the last one, has all probes */
    uint64_t full_usec; /* when the next such round begins */
    Gpus gpus;          /* GPUs seen since the boot; the place of each is its slot */
    bool
        gpus_answer; /* the driver has shown `gpus` to the probe; false: they were seen only on the bus */
    ProbeRequest asks[PROBE_ASKS_MAX];
    size_t n_asks;
    /* The last report of `sdtrainer doctor`, and the id of the request for it; empty: nobody has requested one. */
    char report[RECORD_REPORT_MAX + 1], report_id[RECORD_REQUEST_MAX + 1];
    uint64_t posted_usec; /* when health/<node> was last put; 0: never */
    bool is_posted;       /* the record holds what is known, but for the ages */
    Hash posted;          /* of the record's content as last put, without ages */
    EtcdCall *post;       /* the write under way; NULL: none */
    Timer timer;          /* until the next round */
    bool is_outdated;     /* the settings have changed since the round under way began */
    bool leaving;         /* probes_leave() was called: no round begins any more */
};

void probes_init(Probes *p, const ProbesNeeds *needs);
/* Begins the first round. */
void probes_start(Probes *p);
void probes_clear(Probes *probes);
/* The settings were read again: a round with all probes follows at once, however far off the next one was. */
void probes_reload(Probes *p);
/* The node takes leave: health/<node> says so, and stays. */
void probes_leave(Probes *p);
/* Whether that process is a probe's. */
bool probes_own(const Probes *probes, pid_t pid);

/* The kernel's log says something else than before. */
void probes_note_kernel(Probes *p, const ProbeResult *result);
/* A request of kind check or clear (clear: true) is not answered yet; kv is copied. */
void probes_request(Probes *p, const EtcdKeyValue *kv, bool clear);

/* health/<node> gets this report, in answer to that request. */
void probes_note_report(Probes *p, const char *request, const char *report);

/* sdtraind --probe NAME: runs the probe in this process and prints its findings. The context is that of the
 * environment's SDTRAIN_PROBE, else that of the configuration. */
bool probes_is_child(void);
int probes_run_one(const DaemonConfig *config, const char *name, Error *err);
