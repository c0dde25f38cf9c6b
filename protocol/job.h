/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the job file of a user, parsed and checked, with all defaults filled in.
 *
 * Ownership: job_parse() gives the caller a Job; job_free() accepts NULL. All strings belong to the Job.
 * Units:     samples, steps, seconds as named.
 * Errors:    -EINVAL with "<source>: <path.to.key>: <what is wrong with which value>". Unknown keys are errors.
 * Threads:   immutable after parsing; any.
 * Source:    docs/reference/job-file.md.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "protocol/job-exec.h"

enum {
    JOB_NAME_MAX = 63,
    JOB_PRIORITY_MAX = 1000, /* the lowest priority is -JOB_PRIORITY_MAX */
    JOB_PER_NODE_MAX = 64,   /* as many as a node has slots at most */
    JOB_STREAMS_MAX = 64,
    JOB_READ_AHEAD = 64,
    JOB_READ_AHEAD_MAX = 4096,
    JOB_READ_AHEAD_BYTES = 64 << 20,
    JOB_TEXT_MAX = 1 << 20,
    JOB_PICTURES_MAX = 400, /* as many as a grid has cells at most */
    JOB_CAPTION_MAX = 2000,
    /* Size of a text of dataset_sources_format(). */
    JOB_SOURCES_MAX = 33 * (2 * JOB_STREAMS_MAX + 1),
};

typedef enum JobKind {
    JOB_TRAIN, /* sdtrain's own trainer */
    JOB_EXEC,  /* the program of `exec` */
    JOB_EVAL,  /* `exec`, `loss` or `grid`, once for each checkpoint of the job `of.job` */
} JobKind;
typedef enum Precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 } Precision;
typedef enum Reduction { REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT } Reduction;
typedef enum Prediction { PREDICTION_EPSILON, PREDICTION_V } Prediction;
typedef enum ModelInit { INIT_RANDOM, INIT_SAFETENSORS, INIT_CHECKPOINT } ModelInit;

/* Which weights of a checkpoint sdtrainer evaluates. */
typedef enum EvalOf {
    EVAL_OF_ANY, /* the loss: of all that the checkpoint has; pictures: of the EMA weights, if it has any */
    EVAL_OF_WEIGHTS,
    EVAL_OF_EMA,
} EvalOf;

/* The key of the job file that says how a checkpoint is evaluated: exec, loss or grid. */
typedef enum EvalWork { EVAL_PROGRAM, EVAL_LOSS, EVAL_GRID } EvalWork;

typedef struct JobStream {
    char *uri;
    double proportion;
} JobStream;

/* Where a new job gets the plans of its operations from. A job that resumes uses the plans of its checkpoint. */
typedef enum JobPlans {
    /* The set that is installed for the GPU; without a set, sdtrain's own kernels. */
    JOB_PLANS_INSTALLED,
    /* Rank 0 makes the plans that the installed set lacks, once per submission. */
    JOB_PLANS_AUTO,
    JOB_PLANS_SET, /* the set named by train.plans */
} JobPlans;

/* Pictures that are drawn from each checkpoint. */
typedef struct JobGrid {
    char *uri;       /* where the PNG files go */
    char *model;     /* a diffusers folder; NULL: the codec */
    char **captions; /* ends with NULL; NULL: those of the data's first samples */
    int n_captions;
    int samples, steps; /* pictures; DDIM steps */
    double guidance;
    uint64_t seed;
} JobGrid;

typedef struct Job {
    JobKind kind;
    int priority;                /* jobs of higher priority get slots first */
    char name[JOB_NAME_MAX + 1]; /* [a-z0-9][a-z0-9-]*, used in keys and cgroups */

    struct {
        int min, max;
        int per_node; /* ranks of each node that takes part; 0: as many as the node has slots for */
    } world;

    JobExec exec; /* of programs; model, data and train are empty then */

    struct {
        char job[JOB_NAME_MAX + 1]; /* JOB_EVAL: the job whose checkpoints are evaluated */
        int64_t every_steps;        /* one checkpoint of so many steps is; 0: only the newest */
    } of;

    /* JOB_EVAL. EVAL_PROGRAM: as `exec` says. Otherwise sdtrainer evaluates each checkpoint by itself, with
     * data.streams, data.empty_text_uri, train.device and train.threads. */
    struct {
        EvalWork work;
        EvalOf of;
        int64_t positions; /* EVAL_LOSS: the loss of so many samples is measured */
        JobGrid grid;      /* EVAL_GRID */
    } eval;

    struct {
        char *config_uri; /* model.config: a diffusers config.json */
        ModelInit init;
        char *init_uri; /* safetensors file, or checkpoint manifest */
        bool init_optimizer;
    } model;

    struct {
        JobStream streams[JOB_STREAMS_MAX];
        size_t n_streams;
        char *latents, *text; /* column names; "latents" and "text" by default */
        /* True if the job file names the column; otherwise encoder.json may name it. */
        bool names_latents, names_text;
        double latent_scale;
        char *empty_text_uri; /* NULL: encoder.json names it, or caption_drop is 0 */
        int64_t shuffle_window;
        char *cache_dir;     /* folder on each node; NULL: no cache */
        int64_t cache_bytes; /* limit for the size of cache_dir */
        /* Limits for samples that are read in advance: their number and their bytes. */
        int64_t read_ahead, read_ahead_bytes;
    } data;

    struct {
        int64_t global_batch, grain, steps;
        int64_t n_grains; /* global_batch / grain */
        uint64_t seed;
        JobDevice device;
        Precision precision;
        JobPlans plans;
        char *plans_uri; /* for JOB_PLANS_SET; else NULL */
        int plan_sec;    /* for JOB_PLANS_AUTO: time limit for rank 0 to measure algorithms */
        Reduction reduction;
        int zero_stage; /* 0, 1 or 2 */
        int threads;    /* OpenMP threads per rank */
        struct {
            double lr, beta1, beta2, eps, weight_decay;
            int64_t warmup_steps;
            double clip_norm; /* 0: no clipping */
        } optimizer;
        struct {
            bool enabled;
            double decay;
            int64_t start_step;
        } ema;
        double caption_drop;
        bool stop_if_diverging; /* the leader ends a diverging job as failed */
        Prediction prediction;
        struct {
            double beta_start, beta_end; /* of the schedule scaled_linear */
            int steps;
        } noise_schedule;
    } train;

    struct {
        /* JOB_EXEC: what the program registers must lie below it; NULL: the program registers nothing.
         * JOB_EVAL: what it evaluates must lie below it. */
        char *uri;
        /* If keep_every is 0, no checkpoint is kept for ever. */
        int64_t every_steps, keep_last, keep_every;
        /* true: training waits while a checkpoint is written, and the state is not copied. */
        bool blocking;
        char *local_dir;     /* folder on each node for copies of the node's objects; NULL: none */
        int64_t local_bytes; /* limit for the size of the job's copies */
    } checkpoint;

    struct {
        int max_failures_at_same_step;
        int64_t grow_interval_sec;
        /* Generations that end within this time because of the store do not count as failures. */
        int64_t store_patience_sec;
        /* JOB_EXEC: a world that has run for this time has made progress if the program reports no steps. */
        int64_t progress_sec;
    } recovery;

    /* Hash of all values in the file that may change a bit of the weights. Jobs with equal identities train equally. */
    Hash identity;
} Job;

/* Parses a job file of any kind. source names the text in errors (a path or an etcd key). */
int job_parse_any(const char *source, const char *text, size_t n_bytes, Job **ret, Error *err);
/* Like job_parse_any(), but refuses another kind than JOB_TRAIN. */
int job_parse(const char *source, const char *text, size_t n_bytes, Job **ret, Error *err);
/* Returns the name of the kind in job files: "train", "exec" or "eval". */
const char *job_kind_name(JobKind kind);
/* Tells whether the ranks of the job run the program of `exec`. */
static inline bool job_is_program(const Job *job)
{
    return job->kind != JOB_TRAIN && job->eval.work == EVAL_PROGRAM;
}
/* Tells whether a program of the job may register, and get, the checkpoint of that URI: it lies below checkpoint.uri.
 * Loading a chosen file may run code, so a node's rights must not choose it. */
bool job_exec_may_register(const Job *job, const char *uri);
int job_read_file(const char *path, Job **ret, Error *err);
Job *job_free(Job *job);
DEFINE_CLEANUP(Job, job_free)
/* Returns the identity that the job would have if its columns had the names `latents` and `text`. */
Hash job_identity(const Job *job, const char *latents, const char *text);
/* Returns the text that job_identity() hashes; the caller frees it. job_terms_parse() can read it. */
char *job_canonical(const Job *job, const char *latents, const char *text);
