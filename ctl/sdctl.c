/* SPDX-License-Identifier: Apache-2.0 */
/* sdctl.c - the operator's program: a noun, a verb, options. */
#include "ctl/alerts/verbs.h"
#include "ctl/arguments.h"
#include "ctl/cluster/verbs.h"
#include "ctl/context/context.h"
#include "ctl/context/verbs.h"
#include "ctl/dev/verbs.h"
#include "ctl/job/verbs.h"
#include "ctl/node/verbs.h"
#include "ctl/suggestion.h"
#include "ctl/verbs.h"

#include "base/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const CtlVerb ctl_verbs[] = {
    {"job", "start", job_start, "[FILE|NAME]", COMMON_CLUSTER, &job_start_options,
     "Checks a job file and submits it, or starts a job that has stopped or failed again from its newest checkpoint"},
    {"job", "show", job_show, "NAME", COMMON_CLUSTER, NULL,
     "Prints the job file as it was submitted, as job start takes it again"},
    {"job", "diff", job_diff, "NAME NAME|FILE|MANIFEST", COMMON_CLUSTER | COMMON_JSON, NULL,
     "Shows in which keys two jobs, job files or checkpoints differ, and whether the second would go on from the "
     "first's checkpoints"},
    {"job", "status", job_status, "NAME", COMMON_CLUSTER | COMMON_JSON, &job_status_options,
     "Shows phase, step, loss, ranks, incidents"},
    {"job", "list", job_list, NULL, COMMON_CLUSTER | COMMON_JSON, NULL,
     "Lists all jobs, a line each"},
    {"job", "wait", job_wait, "NAME", COMMON_CLUSTER, &job_wait_options,
     "Waits until a phase or a step is reached"},
    {"job", "events", job_events, "NAME", COMMON_CLUSTER | COMMON_JSON, NULL,
     "Lists worlds, incidents and checkpoints in the order of time"},
    {"job", "logs", job_logs, "NAME", COMMON_CLUSTER, &job_logs_options,
     "Prints what the job's ranks print, on whichever node: of other nodes the end, of this machine all"},
    {"job", "resize", job_resize, "NAME", COMMON_CLUSTER, &job_resize_options,
     "Finishes the step, saves, goes on with N ranks"},
    {"job", "stop", job_stop, "NAME", COMMON_CLUSTER, &job_stop_options,
     "Finishes the step, saves, stops"},
    {"job", "delete", job_delete, "NAME", COMMON_CLUSTER, NULL,
     "Forgets a job that has ended; its checkpoints stay"},
    {"job", "checkpoint", job_checkpoint, "NAME", COMMON_CLUSTER, &job_checkpoint_options,
     "Saves after the present step, and waits until that is committed (60 s by default)"},
    {"job", "recover", job_recover, "NAME [MANIFEST]", COMMON_CLUSTER, &job_recover_options,
     "Has a job that has ended go on from a manifest, or from what its checkpoint folder holds"},
    {"job", "metrics", job_metrics, "NAME", COMMON_CLUSTER, &job_metrics_options,
     "Writes loss, gradient norm, learning rate and samples/s of each committed step"},
    {"job", "evaluate", job_evaluate, "NAME [MANIFEST]", COMMON_CLUSTER, &job_evaluate_options,
     "Has a job of kind eval evaluate a checkpoint, or each one of a job of another cluster"},
    {"job", "evals", job_evals, "NAME", COMMON_CLUSTER | COMMON_JSON, NULL,
     "Lists what became of each checkpoint that a job of kind eval evaluates, with its numbers"},
    {"job", "report", job_report, "NAME", COMMON_CLUSTER, &job_report_options,
     "Writes one HTML page: losses, failures, worlds, recoveries, where the time went"},
    {"job", "sample", job_sample, "NAME", COMMON_CLUSTER, &job_sample_options,
     "Draws a grid of images from the newest checkpoint's averaged weights"},
    {"job", "export", job_export, "NAME", COMMON_CLUSTER, &job_export_options,
     "Writes the newest checkpoint's weights as one safetensors file, or as a whole pipeline"},
    {"node", "list", node_list, NULL, COMMON_CLUSTER | COMMON_JSON, NULL,
     "Lists all nodes, a line each"},
    {"node", "status", node_status, "NODE", COMMON_CLUSTER | COMMON_JSON, NULL,
     "Shows slots, health, what it runs, why it is left out"},
    {"node", "cordon", node_cordon, "NODE", COMMON_CLUSTER, &node_cordon_options,
     "Gives it no new ranks; what runs there goes on"},
    {"node", "drain", node_drain, "NODE", COMMON_CLUSTER, &node_cordon_options,
     "Gives it no new ranks and moves those it has to other nodes, losing no step"},
    {"node", "uncordon", node_uncordon, "NODE", COMMON_CLUSTER, &node_uncordon_options,
     "Lets it have ranks again; out of quarantine only when its probes find nothing"},
    {"node", "forget", node_forget, "NODE", COMMON_CLUSTER, NULL,
     "Takes a lost node that does not come back out of the list, and ends its incident"},
    {"node", "check", node_check, "NODE", COMMON_CLUSTER | COMMON_JSON, &node_check_options,
     "Runs all its probes now and reports what they found; exit code 1 when it is not fit"},
    {"cluster", "status", cluster_status, NULL, COMMON_CLUSTER | COMMON_JSON, NULL,
     "Shows what is wrong, then leader, nodes, free slots, jobs"},
    {"cluster", "what-if", cluster_what_if, NULL, COMMON_CLUSTER | COMMON_JSON, &cluster_what_if_options,
     "Shows what the leader would decide now, or if nodes were lost; writes nothing"},
    {"alerts", "list", alerts_list, NULL, COMMON_CLUSTER | COMMON_JSON, NULL,
     "Lists incidents that are open or that some sink was not notified of yet, and how far each sink is"},
    {"alerts", "test", alerts_test, NULL, COMMON_CLUSTER | COMMON_JSON, &alerts_test_options,
     "Has the leader open and resolve a page at every sink, and shows their answers (40 s by "
     "default)"},
    {"context", "list", context_list, NULL, COMMON_JSON, NULL,
     "Lists the named clusters of this person's and this machine's files, and which one is in use"},
    {"context", "show", context_show, "[NAME]", COMMON_JSON, NULL,
     "Shows one context; the one in use by default"},
    {"context", "use", context_use, "NAME", 0, NULL,
     "Makes it the one in use, in this person's file"},
    {"dev", "up", dev_up, NULL, COMMON_DIR, &dev_up_options,
     "Starts etcd, controllers and nodes on this machine, in one folder"},
    {"dev", "down", dev_down, NULL, COMMON_DIR, NULL,
     "Ends them all"},
    {"dev", "status", dev_status, NULL, COMMON_DIR, NULL,
     "Lists its processes"},
    {"dev", "kill", dev_kill, "PROCESS", COMMON_DIR, NULL,
     "Sends SIGKILL to one of its processes (node2, controller1, etcd)"},
    {"dev", "stop", dev_stop_one, "PROCESS", COMMON_DIR, NULL,
     "Has it end in order, as systemctl stop does"},
    {"dev", "start", dev_start_one, "PROCESS", COMMON_DIR, NULL,
     "Starts it again"},
    {"dev", "kill-node", dev_kill, "PROCESS", COMMON_DIR, NULL,
     "The same as dev kill"},
    {"dev", "start-node", dev_start_one, "PROCESS", COMMON_DIR, NULL,
     "The same as dev start"},
    {NULL, "doctor", doctor, NULL, COMMON_CLUSTER | COMMON_JSON, &doctor_options,
     "Looks at etcd, controllers, nodes and stores, and reports what is wrong and what to do (then exit code 1)"},
    {NULL, "top", top, NULL, COMMON_CLUSTER, &top_options,
     "Shows the cluster, its jobs and what is wrong on one screen, until q is pressed"},
    {NULL, "simulate", simulate, "FILE", COMMON_JSON, &simulate_options,
     "Replays what a controller recorded, and shows what would be decided otherwise now"},
    {NULL, "completion", completion, "SHELL", 0, NULL,
     "Prints the completion of a shell (bash, zsh, fish), to be sourced"},
};
/* clang-format on */
const int ctl_n_verbs = (int)ELEMENTSOF(ctl_verbs);

static bool has_noun(const CtlVerb *v, const char *noun)
{
    return noun ? v->noun && strcmp(v->noun, noun) == 0 : !v->noun;
}

static bool is_noun(const char *word)
{
    for (int i = 0; i < ctl_n_verbs; i++)
        if (has_noun(&ctl_verbs[i], word))
            return true;
    return false;
}

/* Prints the verbs of one noun, or with noun NULL of all nouns. */
static int usage(const char *noun)
{
    printf("usage: sdctl %s VERB [OPTIONS]\n\n", noun ? noun : "NOUN");
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        char name[32];
        if (noun && !has_noun(v, noun))
            continue;
        (void)snprintf(name, sizeof(name), "%s%s%s", v->noun ? v->noun : "", v->noun ? " " : "",
                       v->name);
        printf("  %-15s %s\n", name, v->about);
    }
    printf("\nsdctl %s VERB --help says more.\n", noun ? noun : "NOUN");
    return CTL_DONE;
}

int main(int argc, char **argv)
{
    log_open("sdctl");
    if (!getenv("SDTRAIN_LOG"))
        log_set_level(LOG_LEVEL_ERROR); /* verbs print their own messages */
    (void)signal(SIGPIPE, SIG_DFL);     /* so that `sdctl ... | head` ends without an error */
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return usage(argc > 2 && is_noun(argv[2]) ? argv[2] : NULL);
    if (strcmp(word, "complete") == 0) /* called by the shells' completion scripts */
        return completion_words(argc - 2, argv + 2);
    if (strcmp(word, "--version") == 0) {
        printf("sdctl %s\n", SDTRAIN_VERSION);
        return CTL_DONE;
    }

    const char *noun = is_noun(word) ? word : NULL;
    const char *name = noun ? (argc > 2 ? argv[2] : "") : word;
    if (noun &&
        (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0))
        return usage(noun);
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (strcmp(v->name, name) != 0 || !has_noun(v, noun))
            continue;
        Arguments a;
        int skip = noun ? 2 : 1;
        int code = arguments_parse(v, argc - skip, argv + skip, &a);
        if (code >= 0)
            return code;
        Error err = ERROR_INIT;
        int r = v->common & COMMON_CLUSTER ? context_apply(&a.client, &err) : 0;
        return r < 0 ? ctl_fail(&err, r) : v->run(&a);
    }
    return suggest_verb(noun, name);
}
