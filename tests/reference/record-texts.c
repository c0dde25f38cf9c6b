/* SPDX-License-Identifier: Apache-2.0 */
/* record-texts.c - see record-texts.h. Each new field of records.c needs a sentence here: the test
 * docs checks that. */
#include "tests/reference/record-texts.h"

#include "base/macro.h"

#include <stdio.h>
#include <string.h>

static const RecordReference kinds[] = {
    {"leader", "leader/<lease>", "each controller, under its lease",
     "Each controller has one key. The oldest key leads; its create revision is the leader's "
     "term."},
    {"nodes", "nodes/<node>", "the node, under its lease",
     "Each node that is there has one key. When the lease runs out the key goes, and the leader "
     "begins to wait for the node."},
    {"health", "health/<node>", "the node, on change and every five minutes",
     "The record holds what the probes found, for people. Nothing is decided by it, and it "
     "outlives the node's key."},
    {"cordons", "cordons/<node>", "sdctl and the leader, each its own causes",
     "The record states why a node gets no ranks. It is removed with the last cause."},
    {"specs", "specs/<job>", "sdctl, once",
     "The record holds the job file as it was submitted. Without it the job stands still."},
    {"desired", "desired/<job>", "sdctl",
     "The record holds what the operator wants of the job. The leader carries it out."},
    {"programs", "programs/<job>", "sdctl, with each submission of a job of kind `exec`",
     "The record holds the job file whose program the nodes run. A user who may write it may run "
     "programs on them, so it is a kind of its own, which `etcd-roles --programs` gives the right "
     "to."},
    {"worlds", "worlds/<job>", "the leader, once per generation",
     "The record lists the ranks of the present generation, where they run and where they go on. "
     "Its mod revision guards every write of a node about the job."},
    {"secrets", "/sdtrain-secrets/<cluster>/<job>", "the leader, in the transaction of a world",
     "The ranks of one world know each other by this secret. It lies under a prefix of its own, so "
     "that reading a cluster does not show it."},
    {"phases", "phases/<job>", "the leader",
     "The record holds what the job does, why, and its history of worlds."},
    {"ranks", "ranks/<job>/<generation>/<node>", "the node, under its lease, on change",
     "The record holds what became of the ranks of one world on one node."},
    {"rendezvous", "rendezvous/<job>/<generation>", "rank 0's node",
     "The record holds where the ranks of a world meet."},
    {"checkpoints", "checkpoints/<job>", "rank 0's node appends, the leader strikes out",
     "The record lists the newest 16 commits, oldest first. A checkpoint counts once it is listed "
     "here."},
    {"progress", "progress/<job>", "rank 0's node, at most once a second",
     "The record holds how far the job is, and how fast."},
    {"incidents", "incidents/<id>", "the leader",
     "The record describes one failure: its cause, whom it hit, and how long each phase of the "
     "recovery took."},
    {"alerts", "alerts/<id>", "the leader",
     "The record holds how far each sink was notified of the incident of the same id."},
    {"requests", "requests/<id>", "sdctl; answered by a node or the leader",
     "The record is a question or a wish that is answered once. It is removed after an hour."},
    {"asks", "/sdtrain-logs/<cluster>/asks/<node>/<id>",
     "sdctl, under a lease of its own, again for each answer",
     "The record holds where somebody wants to read on in a node's logs. It goes when the reader "
     "does."},
    {"lines", "/sdtrain-logs/<cluster>/lines/<node>/<id>", "the node, under its lease",
     "The record holds the node's answer to the ask of the same id: at most 16 KiB of its logs. It "
     "goes with the ask."},
};

typedef struct FieldHelp {
    const char *field,
        /* a field without a kind: its text is for all records that do not describe the field
         * themselves */
        *help;
} FieldHelp;

static const FieldHelp helps[] = {
    {"leader.name", "setting `name` of the controller"},
    {"leader.version", "version of the program"},
    {"leader.max_nodes", "nodes that it has room for; it does not look at more"},
    {"leader.max_jobs", "jobs that it has room for; `sdctl job start` refuses one more"},

    {"leader.admit", "nodes that it takes in; empty or `open`: all that register"},
    {"leader.lacks", "kinds of records that its role in etcd may not write, as words; empty: none"},
    {"leader.state", "`left`: it gives leadership up in order, and its key is about to go"},
    {"leader.journal", "file of its journal; empty: it keeps none"},
    {"leader.lease_sec", "its setting `lease_sec`; 0: not reported"},
    {"leader.page", "address and port of its pages; empty: it has none"},
    {"leader.deaths", "leaders that died in a row, on the same records, before this one took over; "
                      "0 once it has shown that it lives"},
    {"leader.records", "digest of the records on which they died"},
    {"leader.still_until_usec",
     "it leads and decides nothing until then, for those deaths; 0: it decides"},
    {"leader.settings", "the controller's settings that it decides by, as `config` of a journal's "
                        "head, without `admit`; empty: not reported"},
    {"leader.before", "the newest of those deaths, the older one first"},
    {"before[].name", "setting `name` of the controller that died"},
    {"before[].journal", "file of its journal"},
    {"before[].at_usec", "when its key went"},

    {"nodes.name", "name of the node, as in the key"},
    {"nodes.machine_id", "identity of the machine, as it reports itself"},
    {"nodes.boot_id", "identity of this boot of its kernel"},
    {"nodes.incarnation",
     "when this sdtraind started; it stays when a lease is lost, and changes with a restart"},
    {"nodes.address", "where other nodes reach its ranks"},
    {"nodes.slots", "ranks that it can host"},
    {"nodes.version", "version of the program"},
    {"nodes.state", "`left`: it left in order"},
    {"nodes.verdict", "worst finding of its probes"},
    {"nodes.evidence", "the finding, in words"},
    {"nodes.job", "job that it runs; empty: none"},
    {"nodes.world_revision", "mod revision of the `worlds` record that it runs"},
    {"nodes.generation", "generation that it runs"},
    {"nodes.lost_slots", "slots that hold a process which survived SIGKILL"},
    {"nodes.startup_usec", "how long its trainers may take to be ready; 0: unknown"},
    {"nodes.bad_slots", "slots whose device must not be used"},
    {"nodes.log_dir", "folder of its ranks' logs"},
    {"nodes.runs", "after etcd was restored from a snapshot: how far the node was with its jobs"},
    {"nodes.memory_bytes", "memory of the machine, with swap; 0: unknown"},
    {"nodes.gpus", "GPUs that its driver has shown since the boot: the first slots have one each; "
                   "0: none, or not reported"},
    {"nodes.features",
     "words for what its version can do and its rights allow, such as `secrets` and `logs`; "
     "`shared`: its user in etcd may write every node's record"},
    {"nodes.lease_sec", "its setting `lease_sec`; 0: not reported"},
    {"nodes.stranger_lease",
     "lease of the last record that another writer put under this name while "
     "the node's own lease lived; 0: none did lately"},
    {"nodes.stranger_revision", "revision of that record; 0: as above"},
    {"nodes.price_class", "the node's label `price`; empty: it has none"},
    {"runs[].job", "name of the job"},
    {"runs[].submission", "submission of that job"},
    {"runs[].generation", "highest generation that the node had ranks of"},
    {"runs[].committed_step", "step of the newest commit that the node knows"},
    {"runs[].committed_generation", "generation of that commit; 0: none"},
    {"runs[].told", "whether this entry must be reported since the restore"},

    {"health.node", "name of the node"},
    {"health.machine_id", "identity of the machine"},
    {"health.verdict", "worst finding of all probes"},
    {"health.evidence", "the finding, in words"},
    {"health.cure", "what makes it go away"},
    {"health.bad_slots", "slots whose device must not be used"},
    {"health.since_usec", "when the verdict became so"},
    {"health.at_usec", "when this record was written"},
    {"health.left_usec",
     "when the node left in order; 0: it did not, so without its key it is lost"},
    {"health.report",
     "what `sdtrainer doctor` printed there, as JSON; empty: nobody has requested it"},
    {"health.report_id", "id of the request for the report"},
    {"health.probes", "one entry for each probe"},
    {"probes[].name", "name of the probe"},
    {"probes[].verdict", "its worst finding"},
    {"probes[].text", "what is wrong, or what there is"},
    {"probes[].cure", "what makes it go away; empty: nothing is wrong"},
    {"probes[].bad_slots", "slots whose device must not be used"},
    {"probes[].since_usec", "when the finding became so"},
    {"probes[].at_usec", "when the probe last answered; 0: not yet"},
    {"probes[].took_usec", "how long that took"},
    {"probes[].hangs", "hangs in a row"},
    {"probes[].failures", "failures in a row: the probe could not find out"},

    {"cordons.node", "name of the node"},
    {"cordons.causes", "what holds the node back; each cause has its own reason and end"},
    {"causes[].owner", "`operator`: `sdctl node cordon` or `drain`. `machine`: the leader, for "
                       "strikes, a verdict or a "
                       "lost slot. `job`: one job's strikes; or it refuses the machine, for "
                       "them or for its numerics"},
    {"causes[].job", "job that refuses the machine, or whose strikes these are"},
    {"causes[].submission", "submission of that job"},
    {"causes[].machine_id",
     "machine that is meant, whatever its name is; empty: whichever has the name"},
    {"causes[].mode", "`none`: strikes are counted, and nothing is held back"},
    {"causes[].reason", "why, in words"},
    {"causes[].since_usec", "since when"},
    {"causes[].until_usec", "when it ends by itself; 0: with `sdctl node uncordon`"},
    {"causes[].strikes", "deaths and hangs of trainers within `strike_window_sec`; of a machine's "
                         "cause: those of former submissions"},
    {"causes[].way", "how all of these ended: `signal 9`, `exit 3`, `hang`; absent: not alike"},
    {"causes[].by", "of an operator: who requested it, as that side states; nobody has checked it"},

    {"specs.spec", "text of the job file"},
    {"specs.resume", "manifest that `sdctl job start --resume` named; empty: none"},
    {"specs.submitted_usec", "when it was submitted"},
    {"specs.submission",
     "128 random bits; a job that is submitted again under its name has others"},
    {"specs.sources",
     "hashes of `data.empty_text` and of each `index.json`, as submitted, and of each "
     "`encoder.json` that holds what the job file leaves out; ranks refuse others"},
    {"specs.by",
     "who submitted it, as that side states, such as `anna@laptop`; nobody has checked it"},

    {"desired.state", "what shall become of the job"},
    {"desired.min", "least ranks"},
    {"desired.max", "most ranks"},
    {"desired.target",
     "ranks that `sdctl job resize` requested; 0: as many as fit between `min` and `max`"},
    {"desired.priority", "place in the queue; more goes first"},
    {"desired.by", "who requested the last change, as that side states; nobody has checked it"},
    {"desired.asked_usec", "when the last change was requested, by the clock there"},

    {"specs.program", "hash of the file in `programs`; empty: the job is not of kind `exec`"},
    {"programs.file", "text of the job file, whose program the nodes run"},
    {"programs.submission", "submission that it belongs to"},
    {"programs.by", "who submitted it, as that user reports"},
    {"worlds.program",
     "hash of the file in `programs` that its ranks run; empty: they are trainers"},

    {"worlds.generation", "number of this world; it only grows"},
    {"worlds.size", "ranks of this world"},
    {"worlds.runs", "nodes in the order of ranks"},
    {"worlds.runs[].node", "name of the node"},
    {"worlds.runs[].incarnation", "incarnation of that node when the world was decided"},
    {"worlds.runs[].slots", "slots that it gives; ranks take them in rising order"},
    {"worlds.resume", "checkpoint that the world goes on from"},
    {"resume.step", "step of that checkpoint"},
    {"resume.uri", "URI of its manifest; empty: the job starts at step 0"},
    {"resume.hash", "hash of the manifest; zero with `adopt`: unknown, and not checked"},
    {"resume.adopt", "whether the checkpoint is another job's"},
    {"resume.find", "whether rank 0 looks for a checkpoint in the folder first. `any`: if there is "
                    "none, go on as above. "
                    "`must`: finding none is a failure"},
    {"resume.takes_over", "as in the commit"},
    {"worlds.incident", "incident that made this world; empty: a start, a resize or growth"},
    {"worlds.reason", "why the world was decided, in words"},
    {"worlds.decided_usec", "when the world was decided"},
    {"worlds.committed_step", "step of the newest commit when it was decided"},
    {"worlds.committed_generation", "generation of that commit; 0: none"},
    {"worlds.submission", "submission of the job"},

    {"secrets.generation", "world that the secret is of"},
    {"secrets.secret", "32 random bytes as hexadecimal digits"},

    {"phases.phase", "what the job does now"},
    {"phases.generation", "generation that the phase is of"},
    {"phases.go", "whether that world may join: the old one is dead or left out"},
    {"phases.leave", "whether the world shall finish its step, save and leave"},
    {"phases.reason", "why, in words"},
    {"phases.since_usec", "since when"},
    {"phases.furthest_step", "furthest step that was completed when this generation began"},
    {"phases.failures_without_progress", "generations in a row that did not pass it"},
    {"phases.goodput", "training time that counts, as a share of the time since the first world"},
    {"phases.useful_sec", "training time that counts, in seconds"},
    {"phases.saving", "the part of `goodput` that waited for saves"},
    {"phases.saving_sec", "the part of `useful_sec` that waited for saves"},
    {"phases.spent_start_usec", "time in phase starting, up to since_usec"},
    {"phases.spent_running_usec", "time in phase running, up to since_usec"},
    {"phases.spent_recovery_usec", "time in phase recovering, up to since_usec"},
    {"phases.spent_resize_usec", "time in phases resizing and stopping, up to since_usec"},
    {"phases.spent_idle_usec", "time pending or stopped since the first world, up to since_usec"},
    {"phases.started_usec", "when the first world was decided"},
    {"phases.grown_usec", "when growth was last planned"},
    {"phases.growths_in_vain",
     "how often in a row this world was asked to leave to grow, and did not"},
    {"phases.tried_revision",
     "newest revision of `desired` or `cordons` for which the world was asked to leave"},
    {"phases.pause_usec", "how long nothing runs before the next world; 0: no pause"},
    {"phases.pauses", "pauses in a row without progress"},
    {"phases.store_lost_usec", "since when the store costs generations; 0: it does not"},
    {"phases.committed_step", "step of the newest commit that is known"},
    {"phases.committed_generation", "generation of that commit; 0: none"},
    {"phases.furthest_resume", "furthest step that a world went on from"},
    {"phases.dies_by", "how the job's trainers end on any machine; absent: no such way is known"},
    {"phases.eval_submission",
     "of kind `eval`: submission of the job whose checkpoints are evaluated"},
    {"phases.eval_present_step",
     "step of the checkpoint whose evaluation has begun; absent: none has"},
    {"phases.eval_present_generation", "generation of that checkpoint"},
    {"phases.eval_step", "each checkpoint up to this step has its verdict, apart from that one"},
    {"phases.eval_results", "the newest verdicts, oldest first"},
    {"eval_results[].step", "step of the checkpoint"},
    {"eval_results[].generation", "its generation"},
    {"eval_results[].verdict", "what became of its evaluation"},
    {"eval_results[].at_usec", "when that was decided"},
    {"phases.dies_usec", "when one last did; `quarantine_sec` later it is forgotten"},
    {"phases.serial", "how often this record was written; an older copy has a lower number"},
    {"phases.cost_rate", "micro-dollars an hour for the slots of the newest world; 0: no prices"},
    {"phases.cost_since_usec", "up to when `cost_spent` counts; 0: the job holds no slots now"},
    {"phases.cost_spent", "micro-dollars that the job has cost"},
    {"phases.cost_lost", "those of them that failures have cost"},
    {"phases.worlds", "the newest worlds, oldest first, with the present one"},
    {"worlds[].generation", "number of the world"},
    {"worlds[].size", "its ranks"},
    {"worlds[].step", "step that it went on from"},
    {"worlds[].decided_usec", "when it was decided"},
    {"worlds[].reason", "why, in words"},
    {"phases.submission", "submission of the job"},

    {"ranks.node", "name of the node"},
    {"ranks.incarnation", "incarnation of the node"},
    {"ranks.generation", "world that is reported on"},
    {"ranks.world_revision", "mod revision of its `worlds` record"},
    {"ranks.ranks", "one report for each slot"},
    {"ranks[].slot", "slot of the rank"},
    {"ranks[].rank", "number of the rank"},
    {"ranks[].pid", "process"},
    {"ranks[].state", "how far the process is"},
    {"ranks[].exit_code", "exit code, or minus the signal"},
    {"ranks[].step", "step that it last reported"},
    {"ranks[].stage", "stage of that step, as a number in the order of [channel.md](channel.md)"},
    {"ranks[].hung", "whether the watchdog killed it"},
    {"ranks[].killed", "whether the daemon killed it on purpose"},
    {"ranks[].unnamed", "it runs a program that names no stage, so that `stage` means nothing"},
    {"ranks[].stuck",
     "it hung, and the kernel showed it stopped, or waiting for a driver or a disk"},
    {"ranks[].unmet", "1 + the rank that it did not meet when it joined; 0: it met all"},
    {"ranks[].text", "its last words"},
    {"ranks[].at_usec", "when its state last changed"},
    {"ranks[].started_usec", "when the process began; 0: unknown"},
    {"ranks[].ready_usec", "when its state was restored; 0: unknown"},
    {"ranks[].joined_usec", "when it met the others; 0: unknown"},
    {"ranks.killed_usec",
     "when the older ranks on this node were known to be dead; 0: there were none"},
    {"ranks.first_step",
     "first step that this world completed, reported by rank 0's node; 0: none yet"},
    {"ranks.first_step_usec", "when that step was completed"},
    {"ranks.left", "whether all ranks left on request"},
    {"ranks.finished", "whether the job's last step is done and committed"},

    {"rendezvous.address", "address and port of rank 0's rendezvous store"},

    {"checkpoints.submission", "submission of the job"},
    {"checkpoints.commits", "the commits"},
    {"commits[].step", "step"},
    {"commits[].generation", "world that wrote it"},
    {"commits[].uri", "URI of its manifest"},
    {"commits[].hash", "hash of the manifest"},
    {"commits[].digest", "digest of the training state"},
    {"commits[].plans", "hash of the plan set that its steps were computed by; empty: none"},
    {"commits[].struck_out", "whether it is invalid: it did not verify, or lies where it may not"},
    {"commits[].takes_over", "id of the `job recover` that named it: a job that goes on from it "
                             "may take the folder over, once; empty: nobody named it"},
    {"commits[].at_usec", "when it was committed"},

    {"progress.generation", "world that trains"},
    {"progress.step", "step that it last completed"},
    {"progress.steps", "steps that the job shall have"},
    {"progress.loss", "loss of that step"},
    {"progress.grad_norm", "norm of the gradient before it is clipped"},
    {"progress.lr", "learning rate of that step"},
    {"progress.samples_per_s", "speed"},
    {"progress.step_s", "time of a step"},
    {"progress.saving_s", "seconds that rank 0 has waited for saves since this world's first step"},
    {"progress.samples_seen", "samples that the weights have seen"},
    {"progress.at_usec", "when this was written"},
    {"progress.unsaved_since_usec", "since when saves fail; 0: they do not"},
    {"progress.save_error", "why they fail"},
    {"progress.save_next_bytes",
     "about how many bytes the next checkpoint has; absent: not known, as on S3"},
    {"progress.save_free_bytes", "bytes that are free where it goes"},
    {"progress.waits_since_usec",
     "since when the ranks wait for data; 0: they do not, or not for long"},
    {"progress.waits_rank", "rank whose data they wait for"},
    {"progress.diverging_since", "step from which on training diverges; 0: it does not"},
    {"progress.diverging", "which value is too large"},
    {"progress.metrics_lost", "steps whose metrics are lost; 0: none"},
    {"progress.metrics_lost_first", "first step between which they lie"},
    {"progress.metrics_lost_last", "last step between which they lie"},
    {"progress.committed_step",
     "step of the newest commit, written in that commit's own transaction"},
    {"progress.committed_generation", "generation of that commit; 0: none"},

    {"incidents.id", "`<job>-<generation>` of the world that failed"},
    {"incidents.state", "whether it is over"},
    {"incidents.severity", "how urgent it is: [alerts.md](../operating/alerts.md)"},
    {"incidents.job", "job; empty: the cluster's own"},
    {"incidents.submission", "submission of the job; empty: none"},
    {"incidents.cause", "one word: `trainer-died`, `node-lost`, `hang`, ..."},
    {"incidents.node", "node that is blamed; empty: nobody"},
    {"incidents.rank", "rank that failed; -1: unknown"},
    {"incidents.generation", "world that failed"},
    {"incidents.step", "step at which it failed"},
    {"incidents.evidence", "what was seen, in words"},
    {"incidents.at_usec", "when it happened"},
    {"incidents.resolved_usec", "when it was over"},
    {"incidents.ended", "whether it is over because the job ended, without a recovery"},
    {"incidents.lost_steps",
     "steps that are trained again: an estimate until the job trains, then from where training "
     "went on; 0 for a failure within a recovery, whose first incident counts them all"},
    {"incidents.reached_step",
     "the step that was reached when the recovery began; absent: unknown, or an earlier "
     "incident is the first of this recovery"},
    {"incidents.detect_s", "from the fault to the leader's knowing; -1: unknown, here and below"},
    {"incidents.decide_s", "to the record of the new world"},
    {"incidents.stop_s", "to the death of the old ranks"},
    {"incidents.start_s", "to the start of the new processes"},
    {"incidents.restore_s", "to all of them being ready"},
    {"incidents.replay_s", "from the first new step to where the old world was"},
    {"incidents.first_step_usec", "when the next world completed its first step; 0: not yet"},
    {"incidents.hold_until_usec",
     "of `nodes-vanished`: until when absence is not acted upon, at the latest; 0: of others"},
    {"incidents.hold_nodes", "of `nodes-vanished`: nodes before they vanished; 0: of others"},

    {"alerts.id", "id of the incident"},
    {"alerts.incident_usec",
     "`at_usec` of the incident; a job that is born again uses its ids again"},
    {"alerts.term", "term of the leader that notifies"},
    {"alerts.settled", "whether nobody is left to notify"},
    {"alerts.deliveries", "one entry for each sink"},
    {"deliveries[].sink", "name of the sink"},
    {"deliveries[].state",
     "`sending`: the sink may have received it. `triggered`: it accepted that the incident is "
     "open. `resolved`: and that it is over. `failed`: it refused, or was tried too often"},
    {"deliveries[].severity", "severity as it was sent"},
    {"deliveries[].attempts", "attempts in vain since it last accepted something"},
    {"deliveries[].at_usec", "when this last changed"},
    {"deliveries[].text", "why the last attempt failed; empty: it did not"},

    {"requests.id", "random"},
    {"requests.kind",
     "`checkpoint` or `recover` of a job, `check`, `clear` or `forget` of a node, `doctor` of all "
     "nodes, `alerts-test`; `uncordon` notes in the leader's log who let a node have ranks again"},
    {"requests.target", "name of the job, node or sink; empty: all sinks"},
    {"requests.submission", "submission of the job that is meant; empty: whichever has the name"},
    {"requests.machine_id", "machine that shall answer; empty: whichever has the name"},
    {"requests.answer", "the answer; empty: not yet"},
    {"requests.outcome",
     "`open`, `done`, `refused` or `failed`; `open` beside an answer: the side that answered is of "
     "an earlier version, and only the text gives the outcome"},
    {"requests.at_usec", "when it was made"},
    {"requests.by", "who made it, as that side states; empty: not given, or the leader"},
    {"requests.commit",
     "of `recover`: checkpoint to go on from; an empty URI: whatever the folder holds"},
    {"commit.step", "step"},
    {"commit.generation", "world that wrote it"},
    {"commit.uri", "URI of its manifest"},
    {"commit.hash", "hash of the manifest"},
    {"commit.digest", "digest of the training state"},
    {"commit.struck_out", "as in `checkpoints`"},
    {"commit.takes_over", "as in `checkpoints`"},
    {"commit.plans", "as in `checkpoints`"},
    {"commit.at_usec", "when it was committed"},
    {"requests.uris", "of `doctor`: the stores that each node tries"},
    {"uris[].uri", "URI of the store"},
    {"uris[].write",
     "whether it must take and give back an object; else it must have an `index.json`"},
    {"uris[].marker",
     "object that the requester has put there, which each node must see; empty: none"},
    {"requests.peers", "of `doctor`: the nodes that each node tries to reach"},
    {"peers[].address", "setting `address` of that node"},
    {"requests.deliveries", "of `alerts-test`: what came of it at each sink"},

    {"asks.job", "job whose logs are read"},
    {"asks.generation", "generation of its world"},
    {"asks.seq", "number of this ask, from 1"},
    {"asks.follow", "whether the answer waits for what is added"},
    {"asks.tail_bytes", "of each rank: how much of the end is read"},
    {"asks.pause_usec", "time that the node lets pass between two answers"},
    {"asks.places", "ranks that are read; none: all that the node has"},
    {"places[].rank", "rank"},
    {"places[].file",
     "which of the rank's files, a number of the node's; 0: where the tail begins"},
    {"places[].offset", "bytes of that file that were read"},

    {"lines.seq", "number of the ask that this answers"},
    {"lines.parts", "ranks whose lines the text holds, in its order"},
    {"parts[].next", "where to read on"},
    {"parts[].next.rank", "rank"},
    {"parts[].next.file", "which of the rank's files"},
    {"parts[].next.offset", "bytes of that file that were read"},
    {"parts[].bytes", "bytes of the text that are this rank's"},
    {"parts[].skipped", "bytes of the log that were left out before them"},
    {"parts[].missing", "whether the node has no such file"},
    {"lines.text", "the lines, without control characters"},
    {"lines.more", "whether there is more to read at once"},
    {"lines.end", "whether all is read, and the ask is over"},
    {"lines.refused", "why the node does not answer; empty: it does"},
};

const RecordReference *record_reference(const char *kind)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        if (strcmp(kinds[i].kind, kind) == 0)
            return &kinds[i];
    return NULL;
}

static const char *find(const char *field)
{
    for (size_t i = 0; i < ELEMENTSOF(helps); i++)
        if (strcmp(helps[i].field, field) == 0)
            return helps[i].help;
    return NULL;
}

const char *record_field_reference(const char *kind, const char *field)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s.%s", kind, field);
    const char *own = find(path);
    return own ? own : find(field);
}

const char *record_described_field(size_t i)
{
    return i < ELEMENTSOF(helps) ? helps[i].field : NULL;
}
