/* SPDX-License-Identifier: Apache-2.0 */
/* payload-text.c - see payload-text.h. */
#include "controller/alerting/payload-text.h"

#include "base/memory.h"

#include <string.h>
#include <time.h>

static const struct {
    const char *cause, *runbook, *advice; /* runbook: page and heading in docs/operating/runbooks */
} advices[] = {
    {"node-lost", "nodes.md#sdtrainnodelost",
     "Training goes on without the node. Find out what became of the machine; it takes "
     "part again when its sdtraind runs. sdctl node cordon says that it is known, sdctl node "
     "forget that it is gone for good."},
    {"nodes-lost", "nodes.md#sdtrainnodelost",
     "More nodes are lost than have a page each: sdctl node list shows them all. A rack, a "
     "switch, a power circuit?"},
    {"not-admitted", "nodes.md",
     "They get no rank. If they are yours, name them in admit of every controller's settings and "
     "reload; else find out who enrolled them, and take their certificate's rights away."},
    {"node-contested", "nodes.md#a-node-is-contested",
     "Somebody else puts a record under this node's name. Do two machines have it? Else find out "
     "who may write it (etcd-roles --node gives each node its own right, --retire-shared ends the "
     "common one)."},
    {"node-restarted", "nodes.md",
     "The machine or its sdtraind was restarted by somebody or something else; "
     "read its journal."},
    {"node-unhealthy", "nodes.md#sdtrainnodeunhealthy",
     "The node is in quarantine. Repair it, then sdctl node uncordon."},
    {"device-fault", "nodes.md#sdtrainnodequarantined",
     "The node is in quarantine. Check the device (sdctl node status), repair or "
     "replace it, then sdctl node uncordon."},
    {"numerics", "nodes.md#sdtrainnodequarantined",
     "The node computes other bits than the rest (suspect its memory or its device), or "
     "lacks the module, driver or GPU that the job needs: the evidence says which. It is "
     "refused for this job until sdctl node uncordon."},
    {"slot-lost", "nodes.md#sdtrainslotlost",
     "A process survives SIGKILL there, or the GPU is bad: the slot gets no new ranks. "
     "See sdctl node status; reset the GPU or reboot."},
    {"non-finite-loss", "jobs.md#sdtrainlossnotfinite",
     "The job has stopped. Look at its losses (sdctl job report) and change the "
     "job or its data; the same step will fail again."},
    {"bad-job", "jobs.md#sdtrainjobfailed",
     "If the job has stopped, correct the job file and start it again. If it goes on without "
     "that node, look at the node's settings."},
    {"not-owner", "jobs.md#sdtrainjobfailed",
     "Another job writes to this one's checkpoint folder; the text names it. Which of the "
     "two shall go on? Both histories are kept."},
    {"data-corrupt", "jobs.md#sdtrainjobfailed",
     "If the job has stopped, repair the shard that the evidence names and start it "
     "again. If it goes on without that node, suspect the node's disk and memory."},
    {"checkpoint-corrupt", "jobs.md#sdtrainjobfailed",
     "A checkpoint did not verify and was struck out. Check the storage "
     "under checkpoint.uri."},
    {"store-unreachable", "checkpoints.md#sdtrainstoretrouble",
     "Trainers cannot reach data or checkpoints, or are refused. Check that "
     "storage and the nodes' credentials; the job tries again by itself."},
    {"store-trouble", "checkpoints.md#sdtrainstoretrouble",
     "The job trains on, but nothing is saved or its data are late. Check the "
     "storage that the evidence names: a failure now costs all since that step."},
    {"diverging", "diverging.md",
     "The loss or its gradient is far too large. Stop the job if it does not come back by itself, "
     "and begin again from the checkpoint that the evidence names, with other settings."},
    {"growth-stuck", "jobs.md#a-job-that-cannot-grow",
     "The job trains on with fewer ranks than there is room for: a step and its save take longer "
     "than "
     "leave_deadline_sec. Raise that setting, or ask for the present size with sdctl job resize."},
    {"record-lost", "checkpoints.md#a-record-of-checkpoints-is-lost",
     "A record of the job was deleted, damaged or put back from a backup. Nothing is to be done "
     "where it says that it was put back; find out who writes to etcd. sdctl job recover finds the "
     "newest checkpoint where the record of them is lost."},
    {"world-lost", "control-plane.md#etcd-restored-from-a-snapshot",
     "The record of the job's world was deleted, damaged or put back from a backup; the "
     "job goes on in another one. Find out who writes to etcd."},
    {"hang", "jobs.md#sdtrainjobstalled",
     "Ranks made no progress and were killed. If the same node is named again, drain it; if "
     "none is, look at the network between the nodes (sdctl job logs)."},
    {"unreachable", "jobs.md#sdtrainmanyincidents",
     "Other ranks could not reach this node. Check its network and its address setting."},
    {"start-timeout", "jobs.md#sdtrainjobnotrunning",
     "Ranks did not become ready in time. Read their logs (sdctl job logs)."},
    {"trainer-died", "jobs.md#sdtrainrecoveryloop",
     "The trainer died alone and is started again. If it dies again and again, read "
     "its log (sdctl job logs)."},
    {"job-dies", "jobs.md#a-job-that-dies-everywhere",
     "Its trainers end in the same way on machine after machine: it is the job, not they. Read its "
     "log (sdctl job logs); a kill for want of memory is a leak, or too small a machine."},
    {"nodes-vanished", "nodes.md#sdtrainnodesvanished",
     "Many nodes vanished at once: suspect etcd or the network. Nobody is "
     "replaced until it is known or some time has passed."},
    {"nodes-unhealthy", "nodes.md#sdtrainnodeunhealthy",
     "More than half of the nodes call themselves unhealthy: suspect the probes "
     "or something that all "
     "share. Nobody is isolated meanwhile; look at one with sdctl node status."},
    {"test", "control-plane.md#sdtrainpagesfail", "Nothing: somebody tried whether pages arrive."},
};

const char *payload_advice(const IncidentRecord *incident)
{
    for (size_t i = 0; i < ELEMENTSOF(advices); i++)
        if (strcmp(advices[i].cause, incident->cause) == 0)
            return advices[i].advice;
    return "See sdctl cluster status and sdctl job events.";
}

const char *payload_link(const AlertsFile *file, const IncidentRecord *incident,
                         char ret[PAYLOAD_LINK_BYTES])
{
    const char *page = "README.md", *base = file->runbook_url;
    for (size_t i = 0; i < ELEMENTSOF(advices); i++)
        if (strcmp(advices[i].cause, incident->cause) == 0)
            page = advices[i].runbook;
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/')
        n--;
    if (n > 0)
        (void)snprintf(ret, PAYLOAD_LINK_BYTES, "%.*s/%s", (int)n, base, page);
    else
        (void)snprintf(ret, PAYLOAD_LINK_BYTES, "%s", file->link);
    return ret;
}

const char *payload_time(uint64_t usec, char ret[PAYLOAD_TIME_BYTES])
{
    time_t seconds = (time_t)(usec / USEC_PER_SEC);
    struct tm tm;
    char date[24] = "";
    if (gmtime_r(&seconds, &tm))
        (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S",
                       &tm); /* the buffer is large enough */
    (void)snprintf(ret, PAYLOAD_TIME_BYTES, "%s.%03uZ", date,
                   (unsigned)(usec % USEC_PER_SEC / USEC_PER_MSEC));
    return ret;
}

const char *payload_summary(const char *cluster, const IncidentRecord *i,
                            char ret[PAYLOAD_SUMMARY_BYTES])
{
    char rank[24] = "";
    if (i->rank >= 0)
        (void)snprintf(rank, sizeof(rank), ", rank %d", i->rank);
    (void)snprintf(ret, PAYLOAD_SUMMARY_BYTES, "%s%s%s: %s%s%s%s%s%s", cluster,
                   i->job[0] ? ", job " : "", i->job, i->cause, i->node[0] ? " on " : "", i->node,
                   rank, i->evidence[0] ? ": " : "", i->evidence);
    return ret;
}

char *payload_text(const PayloadCall *call)
{
    char summary[PAYLOAD_SUMMARY_BYTES], link[PAYLOAD_LINK_BYTES];
    (void)payload_summary(call->cluster, call->incident, summary);
    if (call->message_kind == NOTIFY_RESOLVE)
        return memory_format("resolved: %s", summary);
    (void)payload_link(call->file, call->incident, link);
    return memory_format("%s: %s\nWhat to do: %s%s%s", severity_name(call->incident->severity),
                         summary, payload_advice(call->incident), link[0] ? "\n" : "", link);
}
