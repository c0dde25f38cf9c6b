/* SPDX-License-Identifier: Apache-2.0 */
/* probes.h - runs the health probes of this node, keeps their state, and judges their answers.
 *
 * A driver that hangs also blocks the process that calls it. So all probes run at once, each in a child of its own
 * that can be killed. A node registers only after its first round, so that a missing GPU is known before any rank is
 * placed. A cloud announces two minutes ahead that it takes a machine back. So the probe for such notices also
 * runs between rounds if spot_endpoint is set.
 *
 * Folder:    defaults of the headers here: Threads: loop thread only.
 * Ownership: a value; probes_clear() kills the children. Borrows all its needs, which outlive it.
 * Units:     *_usec as in verdict.h and records.h.
 * Errors:    a probe that cannot run is an answer (verdict.h), not an error.
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
    pid_t pid; /* 0: no child. After SIGKILL the pid stays here until the child has ended */
    int pidfd, output;
    bool killed;    /* the child exceeded its timeout and was killed */
    bool is_waited; /* the round waits for the child */
    uint64_t began_usec;
    json_t *state; /* the probe's state: given in its context, returned in its result */
    sd_event_source *exit_source;
    Timer timer;
} ProbeChild;

/* A request for a check. The answer follows a round that began after the request. */
typedef struct ProbeRequest {
    char key[KEY_MAX];
    int64_t revision;
    char *text;     /* the request's record as stored in etcd; owned */
    bool is_served; /* the round under way began after the request */
} ProbeRequest;

typedef struct ProbesNeeds {
    const DaemonConfig *config;
    sd_event *event;
    const Timers *timers;
    Etcd *etcd;
    const char *boot_id;
    const bool *has_name;   /* this machine holds the node's name and may write health/<node> */
    const SlotTable *slots; /* knows which slots are busy: probes do not touch a busy slot */

    void *userdata; /* passed to the callbacks below */
    void (*began)(void *userdata, const char *probe);
    /* outcome: "answered", "failed" or "hung" */
    void (*ended)(void *userdata, const char *probe, HealthLevel level, const char *outcome);
    void (*judged)(void *userdata, NodeVerdict verdict, uint64_t bad_slots, const char *evidence);
    /* Writes the answer of a served request to etcd; kv is the request. */
    void (*answer)(void *userdata, const EtcdKeyValue *kv, const char *text);
    /* Called after probes_leave(), when the last write of health/<node> has succeeded or failed. */
    void (*record_settled)(void *userdata);
} ProbesNeeds;

struct Probes {
    ProbesNeeds needs;
    KernelWatch kernel;
    /* One answer for each probe, in the order of probe_list(), and a last one for the kernel's log. */
    ProbeAnswer answers[PROBES_MAX];
    size_t n_answers;
    Verdict verdict;
    uint64_t verdict_since_usec; /* realtime of the verdict's last change; 0: no verdict yet */
    NodeVerdict node_verdict;    /* the verdict's level as records name it */
    char evidence[RECORD_TEXT_MAX + 1];
    char cure[96]; /* cure for the worst answer; "": no cure is needed */
    bool is_ready; /* the first round is over */

    ProbeChild children[PROBES_MAX];
    int n_waited;       /* number of children that the round waits for */
    bool is_full;       /* the round under way, or else the last round, runs all probes */
    uint64_t full_usec; /* when the next round of all probes begins */
    Gpus gpus;          /* GPUs seen since the boot; a GPU's index is its slot */
    bool gpus_answer;   /* the GPU probe got `gpus` from the driver; false: from the PCI bus only */
    ProbeRequest asks[PROBE_ASKS_MAX];
    size_t n_asks;
    /* The last report of `sdtrainer doctor` and the id of its request; empty: no report was requested. */
    char report[RECORD_REPORT_MAX + 1], report_id[RECORD_REQUEST_MAX + 1];
    uint64_t posted_usec; /* when health/<node> was last put; 0: never */
    bool is_posted;       /* the record in etcd is up to date, except for its times */
    Hash posted;          /* hash of the record's content as last put, without times */
    EtcdCall *post;       /* the write under way; NULL: none */
    Timer timer;          /* runs until the next round */
    bool is_outdated;     /* the settings have changed since the round under way began */
    bool leaving;         /* probes_leave() was called: no round begins any more */
};

void probes_init(Probes *p, const ProbesNeeds *needs);
/* Begins the first round. */
void probes_start(Probes *p);
void probes_clear(Probes *probes);
/* Called when the settings were read again. A round with all probes follows at once, or after the round under way. */
void probes_reload(Probes *p);
/* Called when the node leaves after a drain: writes left_usec into health/<node>, which stays in etcd. */
void probes_leave(Probes *p);
/* Returns whether pid is the child of a probe. */
bool probes_own(const Probes *probes, pid_t pid);

/* Makes the result the answer for the kernel's log, in place of the earlier answer. */
void probes_note_kernel(Probes *p, const ProbeResult *result);
/* Accepts a request of kind "check", or of kind "clear" if clear is true. A later round answers the request. kv is
 * copied. */
void probes_request(Probes *p, const EtcdKeyValue *kv, bool clear);

/* Writes the report into health/<node>; request is the id of the request that it answers. */
void probes_note_report(Probes *p, const char *request, const char *report);

/* Both functions serve `sdtraind --probe NAME`, which runs the probe in this process and prints its findings. The
 * context comes from the environment variable SDTRAIN_PROBE if set, else from the configuration. */
bool probes_is_child(void);
int probes_run_one(const DaemonConfig *config, const char *name, Error *err);
