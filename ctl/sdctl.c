/* sdctl.c - the operator's program: a noun, a verb, options. */
#include "ctl/verbs.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

const CtlVerb ctl_verbs[] = {
    {"job", "start", job_start, "-f FILE [--watch] [--resume MANIFEST]",
     "check a job file and submit it"},
    {"job", "status", job_status, "NAME [--watch] [-o json]",
     "phase, step, loss, ranks, incidents"},
    {"job", "list", job_list, "[-o json]", "all jobs, a line each"},
    {"job", "wait", job_wait, "NAME --for PHASE|step=N [--timeout S]",
     "until a phase or a step is reached"},
    {"job", "resize", job_resize, "NAME --world N", "go on with N ranks from the next step"},
    {"job", "stop", job_stop, "NAME", "finish the step, save, stop"},
    {"job", "delete", job_delete, "NAME", "forget a job that has ended; its checkpoints stay"},
    {"dev", "up", dev_up, "[--nodes N] [--slots S] [--controllers C] [--dir D]",
     "a cluster on this machine"},
    {"dev", "down", dev_down, "[--dir D]", "end it"},
    {"dev", "status", dev_status, "[--dir D]", "its processes"},
    {"dev", "kill-node", dev_kill_node, "NAME [--dir D]",
     "SIGKILL one of its processes (node2, controller1, etcd)"},
    {"dev", "start-node", dev_start_node, "NAME [--dir D]", "start it again"},
};
const int ctl_n_verbs = (int)ELEMENTSOF(ctl_verbs);

void ctl_help(const char *noun, const char *name)
{
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (strcmp(v->name, name) != 0 || (v->noun != NULL) != (noun != NULL) ||
            (noun && strcmp(v->noun, noun) != 0))
            continue;
        printf("usage: sdctl %s%s%s %s\n\n%s.\n", noun ? noun : "", noun ? " " : "", name,
               v->arguments, v->about);
        if (!noun || strcmp(noun, "dev") != 0)
            printf("\n  --etcd HOST:PORT[,...]   SDTRAIN_ETCD by default\n"
                   "  --cluster NAME           SDTRAIN_CLUSTER by default, else \"default\"\n");
        printf("\nExit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 timed out, 5 cannot reach "
               "etcd.\n");
    }
}

static int usage(FILE *to, const char *noun, int code)
{
    fprintf(to, "usage: sdctl NOUN VERB [OPTIONS]\n\n");
    for (int i = 0; i < ctl_n_verbs; i++)
        if (!noun || (ctl_verbs[i].noun && strcmp(noun, ctl_verbs[i].noun) == 0))
            fprintf(to, "  %s%s%-11s %s\n", ctl_verbs[i].noun ? ctl_verbs[i].noun : "",
                    ctl_verbs[i].noun ? " " : "", ctl_verbs[i].name, ctl_verbs[i].about);
    fprintf(to, "\nsdctl NOUN VERB --help says more.\n");
    return code;
}

static bool is_noun(const char *word)
{
    for (int i = 0; i < ctl_n_verbs; i++)
        if (ctl_verbs[i].noun && strcmp(ctl_verbs[i].noun, word) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    log_open("sdctl");
    (void)signal(SIGPIPE, SIG_DFL); /* sdctl ... | head ends quietly */
    if (argc < 2)
        return usage(stderr, NULL, CTL_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return usage(stdout, NULL, CTL_DONE);
    if (strcmp(argv[1], "--version") == 0) {
        printf("sdctl %s\n", SDTRAIN_VERSION);
        return CTL_DONE;
    }
    const char *noun = is_noun(argv[1]) ? argv[1] : NULL;
    const char *verb = noun ? (argc > 2 ? argv[2] : "") : argv[1];
    if (noun && (!*verb || strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0))
        return usage(*verb ? stdout : stderr, noun, *verb ? CTL_DONE : CTL_USAGE);
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (strcmp(v->name, verb) == 0 && (v->noun != NULL) == (noun != NULL) &&
            (!noun || strcmp(v->noun, noun) == 0))
            return v->run(argc - (noun ? 2 : 1), argv + (noun ? 2 : 1));
    }
    fprintf(stderr, "sdctl: %s%s%s is not a verb\n\n", noun ? noun : "", noun ? " " : "", verb);
    return usage(stderr, noun, CTL_USAGE);
}
