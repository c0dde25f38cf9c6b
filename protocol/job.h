/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the job file: what a person writes, checked and with every default filled in.
 *
 * Ownership: job_parse() gives the caller a Job; job_free() accepts NULL. All strings belong to
 *            the Job.
 * Units:     samples, steps, seconds as named.
 * Errors:    -EINVAL with "<source>: <path.to.key>: <what is wrong with which value>". Unknown
 *            keys are errors.
 * Threads:   immutable after parsing; any.
 * Source:    docs/reference/job-file.md.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"

enum {
    JOB_NAME_MAX = 63,
    JOB_PRIORITY_MAX = 1000, /* the lowest priority is -JOB_PRIORITY_MAX */
    JOB_STREAMS_MAX = 64,
    JOB_READ_AHEAD = 64,
    JOB_READ_AHEAD_MAX = 4096,
    JOB_READ_AHEAD_BYTES = 64 << 20,
    JOB_TEXT_MAX = 1 << 20,
    JOB_SOURCES_MAX = 33 * (2 * JOB_STREAMS_MAX + 1), /* dataset_sources_format() */
};

typedef enum JobDevice { JOB_DEVICE_CPU, JOB_DEVICE_CUDA } JobDevice;
typedef enum Precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 } Precision;
typedef enum Reduction { REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT } Reduction;
typedef enum Prediction { PREDICTION_EPSILON, PREDICTION_V } Prediction;
typedef enum ModelInit { INIT_RANDOM, INIT_SAFETENSORS, INIT_CHECKPOINT } ModelInit;

typedef struct JobStream {
    char *uri;
    double proportion;
} JobStream;

/* Where the plans of a job's operations come from when it begins; one that goes on has its checkpoint's. */
typedef enum JobPlans {
    JOB_PLANS_INSTALLED, /* the set that is installed for the GPU; none: only our own kernels */
    JOB_PLANS_AUTO,      /* rank 0 makes what that set lacks, once a submission */
    JOB_PLANS_SET,       /* train.plans names one */
} JobPlans;

typedef struct Job {
    int priority;                /* place in the queue: the highest goes first */
    char name[JOB_NAME_MAX + 1]; /* [a-z0-9][a-z0-9-]*, as it appears in keys and cgroups */

    struct {
        int min, max;
    } world;

    struct {
        char *config_uri; /* model.config: a diffusers config.json */
        ModelInit init;
        char *init_uri; /* safetensors file, or checkpoint manifest */
        bool init_optimizer;
    } model;

    struct {
        JobStream streams[JOB_STREAMS_MAX];
        size_t n_streams;
        char *latents, *text;           /* column names; "latents" and "text" by default */
        bool names_latents, names_text; /* the file does; else a dataset's encoder.json may */
        double latent_scale;
        char *empty_text_uri; /* NULL: encoder.json names it, or caption_drop is 0 */
        int64_t shuffle_window;
        char *cache_dir;     /* folder on each node; NULL: no cache */
        int64_t cache_bytes; /* bound of cache_dir */
        /* Bounds on the samples that are asked for in advance: their number and their bytes. */
        int64_t read_ahead, read_ahead_bytes;
    } data;

    struct {
        int64_t global_batch, grain, steps;
        int64_t n_grains; /* global_batch / grain: G */
        uint64_t seed;
        JobDevice device;
        Precision precision;
        JobPlans plans;
        char *plans_uri; /* of JOB_PLANS_SET; else NULL */
        int plan_sec;    /* of JOB_PLANS_AUTO: how long rank 0 may time algorithms */
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
        bool stop_if_diverging; /* the job fails then; the leader's to decide */
        Prediction prediction;
        struct {
            double beta_start, beta_end; /* scaled_linear */
            int steps;
        } noise_schedule;
    } train;

    struct {
        char *uri;
        int64_t every_steps, keep_last, keep_every; /* keep_every 0: none are kept for ever */
        /* Training waits while a checkpoint is written, so the state is not copied. */
        bool blocking;
        char *local_dir; /* folder on each node for copies of the objects it wrote; NULL: none */
        int64_t local_bytes; /* bound of the job's copies there */
    } checkpoint;

    struct {
        int max_failures_at_same_step;
        int64_t grow_interval_sec;
        /* Generations that the store costs in this time are not failures. */
        int64_t store_patience_sec;
    } recovery;

    /* Hash of everything in the file that may change a bit of the weights. Two jobs with equal identities train the
     * same. */
    Hash identity;
} Job;

/* source names the text in errors (a path or an etcd key). */
int job_parse(const char *source, const char *text, size_t n_bytes, Job **ret, Error *err);
int job_read_file(const char *path, Job **ret, Error *err);
Job *job_free(Job *job);
DEFINE_CLEANUP(Job, job_free)
/* The identity of a job file that names these columns and is else the same. */
Hash job_identity(const Job *job, const char *latents, const char *text);
/* The text that job_identity() hashes; the caller's. job-terms.h reads it back. */
char *job_canonical(const Job *job, const char *latents, const char *text);
