/* SPDX-License-Identifier: Apache-2.0 */
/* examples.c - see examples.h. Every verb needs a row here, or test-ctl-arguments fails. */
#include "ctl/examples.h"

#include "base/macro.h"

#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 3 };

/* clang-format off */
static const struct {
    const char *verb;
    const char *lines[LINES_MAX + 1];
} examples[] = {
    {"job start", {"sdctl job start job.json --watch",
     "sdctl job start job.json --set train.steps=500 --name try-1 --set checkpoint.uri=s3://runs/try-1 --dry-run",
     "sdctl job start sd2                     # it has stopped or failed: from its newest checkpoint"}},
    {"job show", {"sdctl job show sd2 > job.json           # the file, to be edited and started under another name"}},
    {"job diff", {"sdctl job diff sd2 job.json             # would it go on from sd2's checkpoints?",
     "sdctl job diff sd2 s3://runs/sd1/step-0000004000-o1-g1-0a1b2c3d/manifest.json -o json"}},
    {"job status", {"sdctl job status sd2",
     "sdctl job status sd2 --watch",
     "sdctl job status sd2 -o json | jq .eta_s"}},
    {"job list", {"sdctl job list",
     "sdctl job list -o json | jq -r '.[] | select(.phase == \"failed\") | .job'"}},
    {"job wait", {"sdctl job wait sd2 --for step=1000 --timeout 3600",
     "sdctl job wait sd2 --for succeeded"}},
    {"job events", {"sdctl job events sd2"}},
    {"job logs", {"sdctl job logs sd2 --rank 0 -f",
     "sdctl job logs sd2 --all --generation 2  # of every rank, in a world that is over"}},
    {"job resize", {"sdctl job resize sd2 --world 16 --wait"}},
    {"job stop", {"sdctl job stop sd2 --wait --timeout 300"}},
    {"job delete", {"sdctl job delete sd2"}},
    {"job checkpoint", {"sdctl job checkpoint sd2"}},
    {"job recover", {"sdctl job recover sd2                   # from what its checkpoint folder holds",
     "sdctl job recover sd2 s3://runs/sd2/step-4000/manifest.json"}},
    {"job evaluate", {"sdctl job evaluate sd2-fid s3://runs/sd1/step-0000004000-o1-g1-0a1b2c3d/manifest.json --wait",
     "sdctl job evaluate sd2-fid s3://runs/mine/4000 --step 4000  # a program's, which only it can read",
     "sdctl job evaluate sd2-fid --follow prod/sd2                # each checkpoint of job sd2 of context prod"}},
    {"job evals", {"sdctl job evals sd2-fid", "sdctl job evals sd2-fid -o json"}},
    {"job metrics", {"sdctl job metrics sd2 -o csv > sd2.csv",
     "sdctl job metrics sd2 -o tensorboard --out events --follow"}},
    {"job report", {"sdctl job report sd2 --out report.html"}},
    {"job sample", {"sdctl job sample sd2 --out grid.png --caption 'a red fox' --samples 9 --model /models/sd2"}},
    {"job export", {"sdctl job export sd2 --out unet.safetensors --ema",
     "sdctl job export sd2 --pipeline /models/mine --model /models/sd2 --ema"}},
    {"node list", {"sdctl node list"}},
    {"node status", {"sdctl node status node7"}},
    {"node cordon", {"sdctl node cordon node7 --reason 'disk is slow'"}},
    {"node drain", {"sdctl node drain node7 --reason 'kernel update'"}},
    {"node uncordon", {"sdctl node uncordon node7",
     "sdctl node uncordon node7 --force       # out of quarantine: it was repaired"}},
    {"node forget", {"sdctl node forget node7"}},
    {"node check", {"sdctl node check node7"}},
    {"cluster status", {"sdctl cluster status",
     "sdctl cluster status -o json | jq -e .ok"}},
    {"cluster what-if", {"sdctl cluster what-if                   # what is about to be decided",
     "sdctl cluster what-if --lose node7,node8"}},
    {"alerts list", {"sdctl alerts list"}},
    {"alerts test", {"sdctl alerts test --sink pager"}},
    {"context list", {"sdctl context list"}},
    {"context show", {"sdctl context show prod"}},
    {"context use", {"sdctl context use prod                  # until another one is used"}},
    {"dev up", {"sdctl dev up --nodes 3",
     "source <(sdctl dev up)                  # and the shell knows the cluster"}},
    {"dev down", {"sdctl dev down"}},
    {"dev status", {"sdctl dev status"}},
    {"dev kill", {"sdctl dev kill node2                    # as a machine that dies"}},
    {"dev start", {"sdctl dev start node2"}},
    {"dev stop", {"sdctl dev stop controller1              # in order, as systemctl stop"}},
    {"dev kill-node", {"sdctl dev kill-node node2"}},
    {"dev start-node", {"sdctl dev start-node node2"}},
    {"doctor", {"sdctl doctor                            # etcd, controllers, nodes, stores of the cluster's jobs",
     "sdctl doctor -f job.json                # and whether every node reads and writes what this job needs"}},
    {"top", {"sdctl top",
     "sdctl top --once > now.txt"}},
    {"simulate", {"sdctl simulate /var/log/sdcontroller/events.jsonl",
     "sdctl simulate events.jsonl --from 2026-01-31T12:00:00 --until 2026-01-31T12:10:00 -v"}},
    {"completion", {"source <(sdctl completion bash)",
     "sdctl completion fish > ~/.config/fish/completions/sdctl.fish"}},
};
/* clang-format on */

const char *const *examples_of(const CtlVerb *verb)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%s%s%s", verb->noun ? verb->noun : "",
                   verb->noun ? " " : "", verb->name);
    for (size_t i = 0; i < ELEMENTSOF(examples); i++)
        if (strcmp(examples[i].verb, name) == 0)
            return examples[i].lines;
    return NULL;
}
