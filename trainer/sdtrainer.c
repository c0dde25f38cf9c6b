/* SPDX-License-Identifier: Apache-2.0 */
/* sdtrainer.c - the trainer's program: runs the verb that follows the program's name. */
#include "base/fault.h"
#include "base/log.h"
#include "trainer/evaluate/evaluate.h"
#include "trainer/run.h"
#include "trainer/sample/sample.h"
#include "trainer/session/start-times.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} verbs[] = {
    {"run", verb_run, "train: one rank under sdtraind, or a whole job with --job"},
    {"plan", verb_plan, "print what a rank needs of memory"},
    {"order", verb_order, "print which samples a step trains"},
    {"evaluate", verb_evaluate,
     "evaluate a checkpoint: its loss on held-out data, or a grid of images"},
    {"sample", verb_sample, "draw a grid of images from the newest checkpoint"},
    {"doctor", verb_doctor, "print what a rank finds on this machine"},
};

static int usage(FILE *to, int code)
{
    fprintf(to, "usage: sdtrainer VERB [OPTIONS]\n\n");
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].about);
    fprintf(to, "\nsdtrainer VERB --help says more.\n");
    return code;
}

int main(int argc, char **argv)
{
    start_begin();
    log_open("sdtrainer");
    (void)prctl(PR_SET_NAME, "sdtrainer"); /* sdtraind executes a descriptor, which has no name */
    Error err = ERROR_INIT;
    if (fault_open(&err) < 0) {
        log_error("%s", err.text);
        return 2;
    }
    if (argc < 2)
        return usage(stderr, 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return usage(stdout, 0);
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    fprintf(stderr, "sdtrainer: %s is not a verb\n\n", argv[1]);
    return usage(stderr, 2);
}
