/* SPDX-License-Identifier: Apache-2.0 */
/* protocol-texts.c - see protocol-texts.h. Each new key, field or code needs a sentence here: the
 * test docs checks that. */
#include "tests/reference/protocol-texts.h"

#include "protocol/exit-code.h"

#include <string.h>

/* clang-format off */
const JobKey job_keys[] = {
    {"name", NULL, NULL, true, "lower-case letters, digits, inner `-`; at most 63"},
    {"kind", "\"train\"", NULL, false,
     "sdtrain's own trainer; or `\"exec\"`: [a program of others](#kind-exec); or `\"eval\"`: [the evaluation of "
     "another job's checkpoints](#kind-eval)"},
    {"priority", "0", NULL, false,
     "-1000 to 1000; of jobs that wait, more goes first; `sdctl job start --priority` overrides it"},
    {"world.min", NULL, NULL, true, "least ranks that train the job"},
    {"world.max", NULL, NULL, true, "most ranks; at most the number of grains in a batch"},
    {"model.config", NULL, NULL, true,
     "diffusers' `UNet2DConditionModel` `config.json`, or its folder; of the SD2 family"},
    {"model.init", "\"random\"", NULL, false,
     "or a `.safetensors` file with the network's tensors and no other, or "
     "`{\"checkpoint\": MANIFEST, \"optimizer\": false}`"},
    {"data.streams", NULL, NULL, true,
     "1 to 64 of `{\"uri\": FOLDER, \"proportion\": 1.0}`; each folder is an MDS dataset"},
    {"data.latents", "\"latents\"", NULL, false, "column of latents, 4 x h x w; `encoder.json` names it"},
    {"data.text", "\"text\"", NULL, false,
     "column of text embeddings, tokens x dim; `encoder.json` names it"},
    {"data.latent_scale", "1.0", NULL, false,
     "multiplies the latents, for data that are not scaled yet; those of `sdprep encode` are"},
    {"data.empty_text", NULL,
     "what the first `encoder.json` names; required without one, unless `train.caption_drop` is 0",
     false,
     "`.npy` with the embedding of the empty caption. Nodes and controllers of 0.2.0 refuse a job "
     "that drops captions without this key"},
    {"data.shuffle_window", "262144", NULL, false,
     "samples that are mixed with each other inside a pass"},
    {"data.cache_dir", NULL, "none: in memory", false,
     "a folder on each node's own disk, for what is fetched from S3 and what is unpacked. The ranks of a node share "
     "it. It belongs only to the cache: a folder that holds other files, or an `index.json`, is refused"},
    {"data.cache_bytes", "68719476736", "64 GiB", false,
     "bound of the shards and indices in that folder, of all who share it"},
    {"data.read_ahead", "64", NULL, false, "samples that a rank requests from an S3 store before it needs them"},
    {"data.read_ahead_bytes", "67108864", "64 MiB", false, "bound of the bytes of these samples"},
    {"train.global_batch", NULL, NULL, true, "samples of a step"},
    {"train.grain", NULL, NULL, true, "samples computed at once; divides `global_batch`"},
    {"train.steps", NULL, NULL, true, "steps of the whole job"},
    {"train.seed", "17", NULL, false, "seed of initial weights, order, timesteps, noise and caption drop"},
    {"train.device", "\"cpu\"", NULL, false,
     "or `\"cuda\"`: a GPU for each rank. Such a job gets only slots that have one. "
     "Nodes and controllers of 0.2.0 refuse this key"},
    {"train.precision", "\"fp32\"", NULL, false, "or `\"bf16\"` with `train.device` `\"cuda\"`"},
    {"train.plans", NULL, "`\"auto\"` of a bf16 job", false,
     "which of its libraries' algorithms each operation of a bf16 job uses. `\"auto\"`: rank 0 times algorithms for "
     "what the set installed for its GPU lacks, once a submission, before the first step; `\"installed\"`: that set, "
     "or without one our own kernels, which are slow; else a file or URI of a set, as `sdtrainer plan --job FILE "
     "--plans FILE` makes it (a file called auto is `./auto`). A job that goes on uses what its checkpoint holds: "
     "[Plans](../operating/job.md#plans). Nodes and controllers of 0.2.0 refuse this key"},
    {"train.plan_sec", "60", NULL, false,
     "with `train.plans` `\"auto\"`: seconds in which rank 0 times algorithms, a quarter of the nodes' `startup_sec` "
     "at most; each operation after that takes its library's first proposal. Nodes and controllers before this key "
     "refuse it"},
    {"train.reduction", "\"exact\"", NULL, false,
     "`\"exact\"` (int32), `\"exact64\"` (int64), or on CPUs `\"float\"`, which gives up equal bits"},
    {"train.zero_stage", "1", NULL, false, "0, 1 or 2: how the optimizer's state is divided among the ranks"},
    {"train.threads", "1", NULL, false, "OpenMP threads of a rank"},
    {"train.optimizer.lr", "1e-4", NULL, false, "learning rate after warm-up"},
    {"train.optimizer.betas", "[0.9, 0.999]", NULL, false, "of AdamW"},
    {"train.optimizer.eps", "1e-8", NULL, false, "of AdamW"},
    {"train.optimizer.weight_decay", "0.01", NULL, false, "of AdamW"},
    {"train.optimizer.warmup_steps", "10000", NULL, false, "steps in which the learning rate rises linearly"},
    {"train.optimizer.clip_norm", "1.0", NULL, false, "greatest norm of the gradient; 0: no clipping"},
    {"train.ema", NULL, "none", false, "with `{}` or more there is a moving average of the weights (EMA):"},
    {"train.ema.decay", "0.9999", NULL, false, "its decay"},
    {"train.ema.start_step", "0", NULL, false,
     "the EMA becomes the weights then, and is averaged from the next step on"},
    {"train.caption_drop", "0.1", NULL, false, "share of captions replaced by the empty one"},
    {"train.prediction", "\"epsilon\"", NULL, false, "or `\"v_prediction\"`"},
    {"train.stop_if_diverging", "false", NULL, false,
     "whether the job fails when [training diverges](../operating/runbooks/diverging.md). Nodes and controllers before "
     "this key refuse it"},
    {"train.noise_schedule.kind", "\"scaled_linear\"", NULL, false, "the only one"},
    {"train.noise_schedule.beta_start", "0.00085", NULL, false, "first beta"},
    {"train.noise_schedule.beta_end", "0.012", NULL, false, "last beta"},
    {"train.noise_schedule.steps", "1000", NULL, false, "timesteps"},
    {"checkpoint.uri", NULL, NULL, true,
     "folder or `s3://bucket/prefix` of the job's checkpoints, the same for all nodes. It must hold none yet, and "
     "belongs only to this job: [One folder, one job](../operating/job.md#one-folder-one-job)"},
    {"checkpoint.every_steps", "1000", NULL, false, "steps between two checkpoints"},
    {"checkpoint.keep_last", "3", NULL, false,
     "newest committed checkpoints that stay, 2 to 16. A lower one makes room at the next commit, "
     "start of ranks, or save that finds none"},
    {"checkpoint.keep_every", "0", NULL, false, "steps that this divides stay for ever; 0: none"},
    {"checkpoint.blocking", "false", NULL, false,
     "training waits while a checkpoint is written, and up to 12 bytes of memory a parameter (16 with an EMA) are not "
     "needed for a copy of the state. Nodes of 0.2.0 refuse this key"},
    {"checkpoint.local_dir", NULL, "none", false,
     "a folder on each node's own disk: what its ranks save is also kept there, and restored from there once it has "
     "been verified"},
    {"checkpoint.local_bytes", "68719476736", "64 GiB", false,
     "bound of the job's copies there, on each node; what does not fit is not copied"},
    {"recovery.max_failures_at_same_step", "3", NULL, false, "generations in a row without progress that end the job"},
    {"recovery.store_patience_s", "3600", NULL, false,
     "for this time, generations that end because the store does not answer, or refuses, are not failures; before each "
     "next one there is a pause (1, 2, 4, ... 30 s)"},
    {"recovery.grow_interval_s", "600", NULL, false, "seconds between two growths after nodes came back"},
};
const size_t n_job_keys = ELEMENTSOF(job_keys);

const JobKey exec_job_keys[] = {
    {"name", NULL, NULL, true, "as of any job"},
    {"kind", NULL, NULL, true, "`\"exec\"`"},
    {"world.min", NULL, NULL, true, "least ranks; a multiple of `per_node`"},
    {"world.max", NULL, NULL, true, "most ranks; a multiple of `per_node`"},
    {"world.per_node", "1", NULL, false,
     "ranks of each node that takes part, 1 to 64, as `--nproc-per-node` of torchrun"},
    {"exec.command", NULL, NULL, true,
     "list of program and arguments; no shell. `${RANK}` and the other "
     "[variables](../operating/programs.md#what-the-program-sees) are filled in, `$$` is `$`"},
    {"exec.dir", NULL, NULL, true, "absolute path of the working folder"},
    {"exec.env", NULL, "none", false,
     "object of variables for the program. Those that sdtrain sets, and names that begin with `SDTRAIN_`, are refused; "
     "values may name variables that are the same for a whole node"},
    {"exec.device", "\"cpu\"", NULL, false, "or `\"cuda\"`: a GPU for each rank"},
    {"exec.own_gpu", "false", NULL, false,
     "whether a rank sees only its own GPU, as LOCAL_RANK 0; otherwise it sees those of all ranks of its node"},
    {"exec.setup", NULL, "none", false,
     "a command like `command`, which runs once per node and submission, before the program"},
    {"exec.notify", "false", NULL, false,
     "the job counts as running once rank 0 has reported `READY=1` or its first step, for which it has `startup_sec` "
     "of its node; otherwise when all programs are started"},
    {"exec.steps", NULL, "none", false, "the program's last step, if it reports steps"},
    {"exec.leave_s", "60", NULL, false,
     "seconds that the program has to save and end when it is asked to leave; then it is killed. More than the "
     "controllers' `leave_deadline_sec` is refused"},
    {"exec.leave_signal", "\"SIGTERM\"", NULL, false,
     "signal of that request, for the program's main process only, unless it polls for `LEAVE`; or `\"SIGINT\"`, "
     "`\"SIGHUP\"`, `\"SIGUSR1\"`, `\"SIGUSR2\"`"},
    {"exec.silence_s", "0", NULL, false,
     "seconds without output and without a report after which the program is killed; 0: no limit"},
    {"exec.fence_s", NULL, "`fence_sec` of the node", false,
     "seconds that a node which is cut off from etcd runs the program on after its lease may have ended. 0: the "
     "program is dead before another world can go"},
    {"exec.progress.step", NULL, "none", false,
     "extended regular expression with one group, which finds the number of finished steps in a line of output; "
     "without back-references and counted repetitions"},
    {"exec.progress.loss", NULL, "none", false, "the same for the loss; needs `progress.step`"},
    {"exec.exit_codes", NULL, "none", false,
     "object of exit codes that mean something: `{\"3\": \"never-retry\"}`. Names are those of "
     "[exit codes](exit-codes.md); 0, 75, 78 and 80 to 86 have their meaning already, and any other code is `retry`"},
    {"exec.secrets", NULL, "none", false,
     "list of variables whose values lie on the node, never in the job file; they are masked in output"},
    {"checkpoint.keep_last", NULL, "none: all that are registered", false,
     "newest checkpoints that the program itself keeps, 2 to 16, beside those that it is told to hold. "
     "Evaluations skip older ones"},
    {"checkpoint.uri", NULL, "none: nothing can be registered", false,
     "folder or prefix below which the program's checkpoints lie"},
    {"recovery.max_failures_at_same_step", "3", NULL, false, "generations in a row without progress that end the job"},
    {"recovery.progress_s", "600", NULL, false,
     "a world that has run so long has made progress, if the program reports no steps"},
};
const size_t n_exec_job_keys = ELEMENTSOF(exec_job_keys);

const JobKey eval_job_keys[] = {
    {"kind", NULL, NULL, true, "`\"eval\"`"},
    {"of.job", NULL, NULL, true, "name of the job whose checkpoints are evaluated"},
    {"of.every_steps", "1", NULL, false,
     "the first checkpoint of each interval of so many steps is evaluated, and the last one of a job that has "
     "succeeded"},
    {"of.newest", "false", NULL, false,
     "each evaluation takes the newest checkpoint, and older ones are passed over; instead of `every_steps`"},
    {"checkpoint.uri", NULL, NULL, true,
     "folder or prefix below which the checkpoints of that job lie; others are not loaded"},
    {"recovery.max_failures_at_same_step", "3", NULL, false,
     "tries of one checkpoint before its evaluation counts as failed"},
};
const size_t n_eval_job_keys = ELEMENTSOF(eval_job_keys);

const JobKey loss_job_keys[] = {
    {"world.max", NULL, NULL, true, "`1`, and so `world.min`: the loss is measured by one rank"},
    {"loss.streams", NULL, NULL, true,
     "held-out datasets, as `data.streams` of a job that trains. Columns and scale are those of the followed job"},
    {"loss.positions", "1024", NULL, false,
     "so many samples, from position 0 on; the last grain is filled up. Each has the noise and the timestep of its "
     "position in training, and its caption"},
    {"loss.weights", "\"both\"", NULL, false,
     "`\"weights\"`: the number `loss`; `\"ema\"`: the number `ema_loss`; `\"both\"`: both, if the checkpoint has EMA "
     "weights"},
    {"loss.device", "\"cpu\"", NULL, false,
     "where it is computed: `\"cpu\"`, in fp32, or `\"cuda\"`, in the followed job's precision and by its plans"},
    {"loss.threads", "1", NULL, false, "OpenMP threads"},
};
const size_t n_loss_job_keys = ELEMENTSOF(loss_job_keys);

const JobKey grid_job_keys[] = {
    {"world.max", NULL, NULL, true, "`1`, and so `world.min`: the pictures are drawn by one rank"},
    {"grid.uri", NULL, NULL, true,
     "folder or prefix where the PNG of each checkpoint is put, as `<name>-step-<step>-<hash>.png`"},
    {"grid.streams", NULL, NULL, true,
     "datasets, as `data.streams` of a job that trains, that have the shapes, the empty caption and, without "
     "`captions`, the captions. Columns and scale are those of the followed job"},
    {"grid.model", NULL, "none: the codec and the hashed words of `sdprep openclipart`", false,
     "a folder in diffusers' layout: its VAE decodes, its tokenizer and text encoder read `captions`"},
    {"grid.captions", NULL, "none: those of the first samples", false,
     "list of at most 400 captions, which the pictures take in turn"},
    {"grid.empty_text", NULL, "as `encoder.json` of the data says", false,
     "embedding of the empty caption, as `data.empty_text`; with `model` and `captions` the model's own is used"},
    {"grid.samples", "16", NULL, false, "pictures, or as many as there are captions if these are more; at most 400"},
    {"grid.steps", "25", NULL, false, "DDIM steps"},
    {"grid.guidance", "3", NULL, false,
     "classifier-free guidance; 1: none. If the followed job drops no captions, and without `model` and `captions`, "
     "it is 1"},
    {"grid.seed", "1", NULL, false, "seed of the starting noise: picture i has the same noise of each checkpoint"},
    {"grid.weights", NULL, "`\"ema\"`, if the checkpoint has EMA weights", false, "`\"weights\"` or `\"ema\"`"},
    {"grid.device", "\"cpu\"", NULL, false,
     "where it is computed: `\"cpu\"`, in fp32, or `\"cuda\"`, the network in the followed job's precision and by its "
     "plans, the model in fp32"},
    {"grid.threads", "1", NULL, false, "OpenMP threads"},
};
const size_t n_grid_job_keys = ELEMENTSOF(grid_job_keys);

static const struct {
    const char *field, *help;
} field_helps[] = {
    {"generation", "world that the message is about"},
    {"step", "step that the message is about"},
    {"rank", "this process's rank"},
    {"world_size", "ranks of the world"},
    {"job", "name of the job"},
    {"node", "name of the node"},
    {"spec", "text of the job file"},
    {"resume_uri", "manifest to go on from; empty: start at step 0"},
    {"resume_hash", "hash of that manifest"},
    {"adopt", "whether the manifest is another job's: state is taken over, history is not"},
    {"takes_over", "id of the `job recover` that named `resume_uri`: the folder is taken over, once"},
    {"find", "1 or 2: look into the checkpoint folder first (`any`, `must`); 0: do not"},
    {"bind_address", "address of this node for the ranks' connections"},
    {"submission", "submission of the job"},
    {"sources", "hashes of the data as submitted; empty: not given"},
    {"secret", "secret of the world; empty: it has none"},
    {"gpus", "UUIDs of the GPUs that a program of others may use; empty: none"},
    {"resume_step", "step of `resume_uri`"},
    {"gpu", "PCI address of the slot's GPU; empty: it has none"},
    {"numerics", "the job's numerics as JSON; empty: not chosen yet"},
    {"startup_usec", "time in which the daemon expects the rank to be ready; 0: not given"},
    {"lease_usec",
     "to the runner of a program: CLOCK_BOOTTIME at which the node's lease may end (`exec.fence_s`)"},
    {"alive_usec", "time after which the process is killed unless another `alive` comes"},
    {"address", "address of the rendezvous store"},
    {"held", "at most 16, each with `step`: checkpoints that evaluations read, and that rank 0 keeps"},
    {"pid", "the process"},
    {"stage", "where in the step the rank is"},
    {"waited_usec", "how long the ranks have waited for data or a save; 0: they do not wait"},
    {"waits_rank", "rank whose data they wait for"},
    {"loss", "loss of the step"},
    {"samples_per_sec", "speed"},
    {"samples_seen", "samples that the weights have seen"},
    {"steps", "last step of the job"},
    {"step_sec", "time of the step"},
    {"data_sec", "seconds of it that rank 0 waited for data"},
    {"saving_sec", "seconds that rank 0 has waited for saves since this world's first step"},
    {"grad_norm", "norm of the gradient before it is clipped"},
    {"lr", "learning rate of the step"},
    {"failed_saves", "saves that failed since the process began"},
    {"unsaved_since_usec", "since when saves fail; 0: they do not"},
    {"save_error", "why they fail; may be cut"},
    {"save_next_bytes", "about how many bytes the next save writes; 0: not known"},
    {"save_free_bytes", "bytes that its store has free for it"},
    {"diverging_since", "step from which on training diverges; 0: it does not"},
    {"diverging", "which value is too large"},
    {"metrics_lost", "steps whose metrics are lost; 0: none"},
    {"metrics_lost_first", "first step between which they lie"},
    {"metrics_lost_last", "last step between which they lie"},
    {"write_sec", "from the copy of the state to the manifest"},
    {"blocked_sec", "seconds of it that training waited"},
    {"saved_bytes", "bytes of all ranks"},
    {"store_puts", "puts of rank 0 since its start"},
    {"store_gets", "gets of rank 0 since its start"},
    {"store_put_sec", "seconds that the puts took"},
    {"store_get_sec", "seconds that the gets took"},
    {"uri", "URI of the manifest"},
    {"hash", "hash of the manifest"},
    {"digest", "digest of the training state"},
    {"plans", "hash of the plan set that its steps were computed by; empty: none"},
    {"made_by", "generation that wrote the checkpoint"},
    {"more", "whether another `found` follows"},
    {"exit_code", "code that the process will exit with"},
    {"unnamed", "the program names no stage, so that `stage` means nothing"},
    {"hung", "the program was killed because it had been silent for too long"},
    {"stuck", "the kernel showed it stopped, or waiting for a driver or a disk"},
    {"unmet", "1 + the rank that it did not meet when it joined; 0: it met all"},
    {"text", "`error`, `hung`: why, for people. `done`: `finished` or `left`. `results`: the program's last status"},
    {"numbers", "at most 32, each with `name` and `value`"},
    {"artifacts", "at most 8, each with `name` and `uri`"},
    {"seconds", "from the start of the program to its end"},
};

static const char *const type_helps[CHANNEL_TYPES] = {
    [CHANNEL_ASSIGN] = "what to train: job file, generation, rank, world, checkpoint to go on from",
    [CHANNEL_GO] = "the old world is dead: join the others now",
    [CHANNEL_ALIVE] = "the daemon lives; without it the process is killed after `alive_usec`",
    [CHANNEL_CHECKPOINT] = "save after this step, and go on",
    [CHANNEL_STOP] = "finish the step, save, and exit 0; only to rank 0",
    [CHANNEL_COMMITTED] = "the checkpoint of this step is in etcd",
    [CHANNEL_REFUSED] = "the guard in etcd did not hold: this world is over",
    [CHANNEL_HUNG] = "to a runner: its program hangs and is to be ended; `error` reports its state",
    [CHANNEL_HELLO] = "the process runs",
    [CHANNEL_RENDEZVOUS] = "rank 0: where the others meet it",
    [CHANNEL_READY] = "the state is restored; waits for `go`",
    [CHANNEL_STAGE] = "a stage begins; at most 20 messages a second",
    [CHANNEL_STEP] = "rank 0: a step is done",
    [CHANNEL_SAVED] = "rank 0: a checkpoint is written; `committed` or `refused` answers it",
    [CHANNEL_ERROR] = "why the process will exit",
    [CHANNEL_DONE] = "the last step is done, or the process leaves on request",
    [CHANNEL_FOUND] = "rank 0, with `find`: a checkpoint there, oldest first; the last one is answered as `saved`",
    [CHANNEL_RESULTS] = "rank 0 of an evaluation: what its program has reported; `committed` or `refused` answers it",
};
/* clang-format on */

const char *channel_field_help(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(field_helps); i++)
        if (strcmp(field_helps[i].field, name) == 0)
            return field_helps[i].help;
    return NULL;
}

const char *channel_type_help(ChannelType type)
{
    assert((unsigned)type < CHANNEL_TYPES);
    return type_helps[type];
}

bool channel_is_of_daemon(ChannelType type) { return type < CHANNEL_HELLO; }

const char *exit_code_help(int code)
{
    switch (code) {
    case EXIT_DONE:
        return "done, or left on request";
    case EXIT_RETRY:
        return "try again";
    case EXIT_NEVER_RETRY:
        return "the job itself is bad, or another version of sdtrain wrote what it reads";
    case EXIT_DEVICE_FAULT:
        return "a device failed";
    case EXIT_PEER_LOST:
        return "a peer was lost";
    case EXIT_DATA_CORRUPT:
        return "data or a checkpoint do not verify";
    case EXIT_STORE_UNREACHABLE:
        return "the store cannot be reached";
    case EXIT_NON_FINITE:
        return "loss or gradient is not finite";
    case EXIT_NUMERICS:
        return "numerics differ from the job's, or the node lacks what its device needs";
    case EXIT_NOT_OWNER:
        return "the checkpoint folder is another job's";
    default:
        return NULL;
    }
}
