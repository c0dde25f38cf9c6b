/* SPDX-License-Identifier: Apache-2.0 */
/* first-attention.c - case "attention": cuDNN's attention at the shapes of sd2-base; shapes that do not fill a tile
 * come first. For each shape the case runs both passes, with and without a padding mask, by two engines, at usual
 * scores and where all scores are near -128. It reports whether results are finite, right and equal in two runs, and
 * how long they take.
 *
 * Graphs are planned in threads, because each plan takes a core most of a second. They run in the order of the shapes
 * as soon as they are planned. Memory is allocated by the runtime directly, because a device of the module has its own
 * stream.
 *
 * A plan's line has "plan", "mask", "images", and for each engine "sec". A run's line has "shape", "pass", "mask",
 * "scores", and for each engine how many of the checked values ("looked") are not finite ("bad"), the largest error and
 * the largest value by float64, and the microseconds of all images. "inputs_bad" is how many values of backward's out
 * and sums are not finite. */
#include "kernels/test/first/first.h"

#ifndef SDTRAIN_CUDA_ATTENTION
int first_attention(void)
{
    first_line(json_pack("{s:s}", "not_run", "this build has no attention of cuDNN"));
    return 0;
}
#else

#include "base/clock.h"
#include "kernels/cuda/module/forward.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/test/first/first-attention-expected.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum {
    ENGINES = 2,
    THREADS_MAX = 8,
    JOBS_MAX = 64,
    /* So many bytes at the beginning of a result are checked. Its last image is checked, too. */
    LOOKED = 24 << 20,
    ROUNDS = 5,
    RUNS_MAX = 64,
    ROUND_USEC = 2000,
};

#define WORKSPACE_BYTES ((size_t)3 << 29)

static const double late_sec = 1.5; /* the most time that a run may take */

/* The small shapes come first: they are suspected of giving wrong results. */
static const AttentionShape shapes[] = {
    {32, 20, 64, 64, 64, 3840, 3840},     {128, 20, 64, 16, 16, 3840, 3840},
    {128, 20, 64, 16, 77, 1280, 2560},    {128, 20, 64, 64, 77, 1280, 2560},
    {32, 5, 64, 4096, 77, 320, 640},      {32, 20, 64, 256, 256, 3840, 3840},
    {32, 10, 64, 1024, 1024, 1920, 1920}, {32, 5, 64, 4096, 4096, 960, 960},
};

/* ---- plans ---- */

typedef struct Job {
    AttentionShape shape; /* the shape with all images */
    AttentionPass pass;
    bool mask, groups; /* groups: an extra job that tries a number of images at once */
    int images;
    AttentionGraph *graph; /* NULL: cuDNN refused the job */
    cudnnHandle_t handle;  /* the handle of the thread that planned the graph */
    int n_engines;
    double sec[ENGINES];
    bool done;
    Error err;
} Job;

static struct {
    Job jobs[JOBS_MAX];
    int n, next;
    bool stop;
    int architecture;
    pthread_mutex_t mutex;
    pthread_cond_t done;
} planning = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static void add_job(const AttentionShape *shape, AttentionPass pass, bool mask, int images)
{
    assert(planning.n < JOBS_MAX);
    planning.jobs[planning.n++] =
        (Job){.shape = *shape, .pass = pass, .mask = mask, .images = images};
}

/* Returns how many images a plan set would process at once. Backward's workspace grows with the number of pairs of a
 * query and a key in these images, and has a limit. */
static int images_of(const AttentionShape *s, AttentionPass pass)
{
    int images = s->n;
    const int64_t pairs = s->heads * s->q_tokens * s->kv_tokens;
    while (pass == ATTENTION_BACKWARD && images > 1 &&
           2 * pairs * images > ATTENTION_WORKSPACE_MAX * INT64_C(3) / 4)
        images /= 2;
    return images;
}

static void add_jobs(void)
{
    const AttentionShape *last = &shapes[ELEMENTSOF(shapes) - 1];
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        for (AttentionPass pass = 0; pass < N_ATTENTION_PASSES; pass++)
            for (int mask = 0; mask < 2; mask++)
                add_job(&shapes[i], pass, mask, images_of(&shapes[i], pass));
    for (int images = 1; images <= 8; images *= 2) {
        add_job(last, ATTENTION_BACKWARD, false, images);
        planning.jobs[planning.n - 1].groups = true;
    }
}

static double seconds_since(uint64_t began)
{
    return (double)(clock_monotonic_usec() - began) * 1e-6;
}

static void plan(Job *job, cudnnHandle_t handle)
{
    const AttentionTarget target = {.handle = handle, .architecture = planning.architecture};
    AttentionShape part = job->shape;
    uint64_t began = clock_monotonic_usec();
    part.n = job->images;
    job->handle = handle;
    int r = attention_graph_new(&target, &part, job->pass, job->mask, NULL, &job->graph, &job->err);
    while (r == 0 && job->n_engines < ENGINES) {
        job->sec[job->n_engines++] = seconds_since(began);
        began = clock_monotonic_usec();
        if (job->n_engines < ENGINES)
            r = attention_graph_select(job->graph, job->n_engines, &job->err);
    }
}

static void *plan_many(void *unused)
{
    cudnnHandle_t handle = NULL;
    const cudnnStatus_t status = cudnnCreate(&handle);
    if (status != CUDNN_STATUS_SUCCESS)
        first_failed("cudnnCreate", (int)status, cudnnGetErrorString(status));
    for (;;) {
        (void)pthread_mutex_lock(&planning.mutex);
        Job *job =
            planning.next < planning.n && !planning.stop ? &planning.jobs[planning.next++] : NULL;
        (void)pthread_mutex_unlock(&planning.mutex);
        if (!job)
            return unused;
        if (handle)
            plan(job, handle);
        else
            (void)error_set(&job->err, -EIO, "no handle");
        (void)pthread_mutex_lock(&planning.mutex);
        job->done = true;
        (void)pthread_cond_broadcast(&planning.done);
        (void)pthread_mutex_unlock(&planning.mutex);
    }
}

static void await_job(const Job *job)
{
    (void)pthread_mutex_lock(&planning.mutex);
    while (!job->done)
        (void)pthread_cond_wait(&planning.done, &planning.mutex);
    (void)pthread_mutex_unlock(&planning.mutex);
}

static void tell_plan(const Job *job)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(&job->shape, job->pass, name);
    json_t *seconds = json_array();
    for (int i = 0; i < job->n_engines; i++)
        json_array_append_new(seconds, first_number(job->sec[i]));
    json_t *line = json_pack("{s:s,s:b,s:i,s:o}", "plan", name, "mask", job->mask, "images",
                             job->images, "sec", seconds);
    if (job->n_engines < ENGINES)
        json_object_set_new(line, "no_more", first_text(job->err.text));
    first_line(line);
}

/* ---- operands ---- */

static const AttentionTensor operands[] = {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_DOUT};

static struct {
    AttentionTensors usual, at_far;
    void *workspace;
    uint16_t *host; /* page-locked memory of LOOKED bytes and one more image */
} memory;

/* Ends the case if the runtime refuses a call, because later results would be worthless. */
static void must(cudaError_t code, const char *api)
{
    if (code == cudaSuccess)
        return;
    first_failed(api, (int)code, cudaGetErrorString(code));
    exit(EXIT_FAILURE);
}

static void *memory_of(size_t n_bytes)
{
    void *got = NULL;
    must(cudaMalloc(&got, n_bytes), "cudaMalloc");
    return got;
}

static void fill(void *to, size_t n_bytes, const uint16_t *table, size_t offset)
{
    for (size_t at = 0, from = offset * sizeof(*table) % (TABLE * sizeof(*table)); at < n_bytes;) {
        const size_t piece = MIN(n_bytes - at, TABLE * sizeof(*table) - from);
        must(cudaMemcpy((char *)to + at, (const char *)table + from, piece, cudaMemcpyHostToDevice),
             "cudaMemcpy");
        at += piece;
        from = 0;
    }
}

static void *lengths_of(int64_t tokens)
{
    int32_t lengths[128];
    void *to = memory_of(sizeof(lengths));
    for (size_t i = 0; i < ELEMENTSOF(lengths); i++)
        lengths[i] = (int32_t)tokens;
    must(cudaMemcpy(to, lengths, sizeof(lengths), cudaMemcpyHostToDevice), "cudaMemcpy");
    return to;
}

/* Allocates one buffer for each tensor, with the largest size of any shape. */
static void make_memory(void)
{
    size_t largest[N_ATTENTION_TENSORS] = {0}, image = 0;
    tables_make();
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        for (AttentionTensor t = 0; t <= ATTENTION_DV; t++) {
            const size_t bytes = attention_image_bytes(&shapes[i], t);
            largest[t] = MAX(largest[t], (size_t)shapes[i].n * bytes);
            image = MAX(image, bytes);
        }
    for (AttentionTensor t = 0; t <= ATTENTION_DV; t++)
        memory.usual.of[t] = memory_of(largest[t]);
    memory.at_far = memory.usual;
    memory.at_far.of[ATTENTION_Q] = memory_of(largest[ATTENTION_Q]);
    memory.at_far.of[ATTENTION_K] = memory_of(largest[ATTENTION_K]);
    for (size_t i = 0; i < ELEMENTSOF(operands); i++) {
        const AttentionTensor t = operands[i];
        fill(memory.usual.of[t], largest[t], table_of(t, false), offset_of(t));
        if (memory.at_far.of[t] != memory.usual.of[t])
            fill(memory.at_far.of[t], largest[t], table_of(t, true), offset_of(t));
    }
    memory.workspace = memory_of(WORKSPACE_BYTES);
    must(cudaMallocHost((void **)&memory.host, LOOKED + image), "cudaMallocHost");
}

/* ---- results ---- */

/* Copies the checked images of a result to the host: the first images and the last one. Returns their number. */
static int64_t fetch(const AttentionShape *s, AttentionTensor t, const void *result)
{
    const size_t bytes = attention_image_bytes(s, t);
    const int64_t n = CLAMP((int64_t)(LOOKED / bytes), INT64_C(1), (int64_t)s->n);
    must(cudaMemcpy(memory.host, result, (size_t)n * bytes, cudaMemcpyDeviceToHost), "a result");
    if (n == s->n)
        return n;
    must(cudaMemcpy((char *)memory.host + (size_t)n * bytes,
                    (const char *)result + (size_t)(s->n - 1) * bytes, bytes,
                    cudaMemcpyDeviceToHost),
         "a result");
    return n + 1;
}

typedef struct Scan {
    int64_t looked, bad; /* the numbers of checked values, and of values that are not finite */
    uint64_t hash;       /* equal bytes have equal hashes */
} Scan;

/* Scans the heads in the rows that fetch() has copied. Behind the heads, rows may have elements that are never
 * written. */
static Scan scan(const AttentionShape *s, AttentionTensor t, int64_t images)
{
    Scan found = {0, 0, 0};
    const int64_t rows = images * tokens_of(s, t), stride = stride_of(s, t);
    const bool wide = t == ATTENTION_SUMS;
    const int64_t width = wide ? stride : (int64_t)s->heads * HEAD;
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *values = memory.host + row * stride;
        /* In a float only the upper half is checked, because it contains the exponent. */
        for (int64_t i = wide; i < width; i += wide ? 2 : 1)
            found.bad += (values[i] & 0x7f80u) == 0x7f80u;
        for (int64_t i = 0; i + 4 <= width; i += 4) {
            uint64_t word;
            memcpy(&word, values + i, sizeof(word));
            found.hash = (found.hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
            found.hash ^= found.hash >> 29;
        }
        found.looked += wide ? width / 2 : width;
    }
    return found;
}

static double fetch_one(const void *result, AttentionTensor t, size_t i)
{
    union {
        float wide;
        uint16_t half;
    } value;
    const size_t bytes = t == ATTENTION_SUMS ? sizeof(value.wide) : sizeof(value.half);
    must(cudaMemcpy(&value, (const char *)result + i * bytes, bytes, cudaMemcpyDeviceToHost),
         "a value");
    return t == ATTENTION_SUMS ? (double)value.wide : of_bf16(value.half);
}

typedef struct Largest {
    double error, value;
} Largest;

/* Compares a value. Values that are not finite are not compared, but counted elsewhere. */
static void compare(Largest *l, double got, double want)
{
    if (isfinite(got))
        l->error = MAX(l->error, fabs(got - want));
    l->value = MAX(l->value, fabs(want));
}

static json_t *largest_json(const Largest *l)
{
    return json_pack("[o,o]", first_number(l->error), first_number(l->value));
}

static json_t *forward_errors(const Expected *e, const AttentionTensors *tensors)
{
    Largest out = {0, 0}, sums = {0, 0};
    for (int i = 0; i < SAMPLES; i++) {
        const Head *h = &e->samples[i].head;
        const int64_t row = e->samples[i].row;
        compare(&out,
                fetch_one(tensors->of[ATTENTION_OUT], ATTENTION_OUT,
                          place_of(h, ATTENTION_OUT, row) + (size_t)e->samples[i].d),
                e->samples[i].out);
        compare(&sums,
                fetch_one(tensors->of[ATTENTION_SUMS], ATTENTION_SUMS,
                          (size_t)((h->image * h->s->heads + h->head) * h->s->q_tokens + row)),
                e->samples[i].sum);
    }
    return json_pack("{s:o,s:o}", "out", largest_json(&out), "sums", largest_json(&sums));
}

/* Returns a gradient's largest error in the last head of the last image, which is the last image that fetch()
 * copied. */
static Largest gradient_error(const Expected *e, AttentionTensor t, int64_t images)
{
    Head h = e->head;
    Largest largest = {0, 0};
    h.image = images - 1;
    for (int64_t row = 0; row < tokens_of(h.s, t); row++)
        for (int d = 0; d < HEAD; d++)
            compare(&largest, of_bf16(memory.host[place_of(&h, t, row) + (size_t)d]),
                    e->gradients[t - ATTENTION_DQ][row * HEAD + d]);
    return largest;
}

/* ---- runs ---- */

typedef struct Results {
    AttentionTensor first, last;
} Results;

static Results results_of(AttentionPass pass)
{
    return pass == ATTENTION_FORWARD ? (Results){ATTENTION_OUT, ATTENTION_SUMS}
                                     : (Results){ATTENTION_DQ, ATTENTION_DV};
}

/* Runs all images, one group after the other, with the main thread's handle. If cuDNN accepts only the handle that the
 * plan was made with, that handle is used from then on. */
static int run(const Job *job, cudnnHandle_t handle, const AttentionTensors *tensors, Error *err)
{
    static bool by_planner;
    int r = 0;
    for (int first = 0; r == 0 && first < job->shape.n; first += job->images) {
        const AttentionTensors part = attention_images(&job->shape, tensors, first);
        r = attention_graph_execute(job->graph, by_planner ? job->handle : handle, &part,
                                    memory.workspace, err);
        if (r == 0 || by_planner)
            continue;
        r = attention_graph_execute(job->graph, job->handle, &part, memory.workspace, err);
        by_planner = r == 0;
        if (by_planner)
            first_failed("a graph by another handle than its own", -EIO, "it runs by its own");
    }
    return r;
}

static void wait_for_all(void) { must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

static void poison(const Job *job, const AttentionTensors *tensors)
{
    const Results results = results_of(job->pass);
    for (AttentionTensor t = results.first; t <= results.last; t++)
        must(cudaMemset(tensors->of[t], 0xff,
                        (size_t)job->shape.n * attention_image_bytes(&job->shape, t)),
             "cudaMemset");
}

static double usec_of_runs(const Job *job, cudnnHandle_t handle, const AttentionTensors *tensors,
                           int runs)
{
    Error refused = ERROR_INIT;
    const uint64_t began = clock_monotonic_usec();
    for (int i = 0; i < runs; i++)
        if (run(job, handle, tensors, &refused) < 0)
            return -1;
    wait_for_all();
    return (double)(clock_monotonic_usec() - began) / runs;
}

static int by_length(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns how many microseconds the pass takes for all images. If a round has only one run, gaps that the host causes
 * are included. < 0: the run was refused. */
static double usec_of(const Job *job, cudnnHandle_t handle, const AttentionTensors *tensors)
{
    double rounds[ROUNDS];
    const double usec = usec_of_runs(job, handle, tensors, 1);
    const int runs = CLAMP((int)(ROUND_USEC / MAX(usec, 1.0)), 1, RUNS_MAX);
    for (int i = 0; i < ROUNDS; i++)
        rounds[i] = usec_of_runs(job, handle, tensors, runs);
    qsort(rounds, ROUNDS, sizeof(*rounds), by_length);
    return rounds[0] < 0 ? -1 : rounds[ROUNDS / 2];
}

typedef struct Look {
    const Job *job;
    cudnnHandle_t handle;
    AttentionTensors tensors;
    const Expected *expected; /* NULL: results are not compared */
    bool timed;
} Look;

/* Runs the job twice on results filled with NaN, and checks each result. */
static int look_at_results(const Look *l, json_t *line, Error *err)
{
    const Job *job = l->job;
    const Results results = results_of(job->pass);
    Scan scans[2][N_ATTENTION_TENSORS];
    json_t *bad = json_object(), *errors = json_object();
    int64_t looked = 0;
    bool equal = true;
    int r = 0;
    for (int time = 0; r == 0 && time < 2; time++) {
        poison(job, &l->tensors);
        r = run(job, l->handle, &l->tensors, err);
        wait_for_all();
        for (AttentionTensor t = results.first; r == 0 && t <= results.last; t++) {
            static const char *const names[] = {[ATTENTION_OUT] = "out",
                                                [ATTENTION_SUMS] = "sums",
                                                [ATTENTION_DQ] = "dq",
                                                [ATTENTION_DK] = "dk",
                                                [ATTENTION_DV] = "dv"};
            const int64_t images = fetch(&job->shape, t, l->tensors.of[t]);
            scans[time][t] = scan(&job->shape, t, images);
            equal = equal && scans[time][t].hash == scans[0][t].hash;
            if (time == 1)
                continue;
            looked += scans[0][t].looked;
            json_object_set_new(bad, names[t], json_integer(scans[0][t].bad));
            if (job->pass == ATTENTION_BACKWARD && l->expected && l->expected->gradients[0]) {
                const Largest largest = gradient_error(l->expected, t, images);
                json_object_set_new(errors, names[t], largest_json(&largest));
            }
        }
    }
    if (r == 0 && job->pass == ATTENTION_FORWARD && l->expected) {
        json_decref(errors);
        errors = forward_errors(l->expected, &l->tensors);
    }
    json_object_set_new(line, "looked", json_integer(looked));
    json_object_set_new(line, "bad", bad);
    json_object_set_new(line, "error", errors);
    json_object_set_new(line, "equal", json_boolean(equal));
    return r;
}

/* Selects the engine in the graph and checks it. */
static json_t *look_at_engine(const Look *l, int engine)
{
    Error err = ERROR_INIT;
    ConvChoice choice = {.engine = -1};
    json_t *line = json_object(), *knobs = json_object();
    int r = attention_graph_select(l->job->graph, engine, &err);
    if (r == 0)
        r = attention_graph_choice(l->job->graph, &choice, &err);
    for (int i = 0; i < choice.n_knobs; i++) {
        char type[16];
        (void)snprintf(type, sizeof(type), "%d", choice.knobs[i].type);
        json_object_set_new(knobs, type, json_integer(choice.knobs[i].value));
    }
    const int64_t workspace = attention_graph_workspace_bytes(l->job->graph);
    json_object_set_new(line, "engine", json_integer(choice.engine));
    json_object_set_new(line, "knobs", knobs);
    json_object_set_new(line, "workspace", json_integer(workspace));
    if (r == 0 && workspace > (int64_t)WORKSPACE_BYTES)
        r = error_set(&err, -ENOMEM, "more workspace than this case has");
    if (r == 0)
        r = look_at_results(l, line, &err);
    if (r == 0 && l->timed)
        json_object_set_new(line, "usec", first_number(usec_of(l->job, l->handle, &l->tensors)));
    if (r < 0)
        json_object_set_new(line, "failed", first_text(err.text));
    return line;
}

static json_t *line_of(const Look *l, bool far)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(&l->job->shape, ATTENTION_FORWARD, name);
    name[strlen(name) - strlen(" forward")] = '\0';
    return json_pack("{s:s,s:s,s:b,s:s,s:i}", "shape", name, "pass",
                     l->job->pass == ATTENTION_FORWARD ? "forward" : "backward", "mask",
                     l->job->mask, "scores", far ? "far" : "usual", "images", l->job->images);
}

/* Computes backward's inputs by the forward pass with the same mask. Returns how many of the checked values are not
 * finite; < 0: there are no inputs. */
static int64_t make_inputs(const Look *l, const Job *forward)
{
    Error err = ERROR_INIT;
    int64_t bad = 0;
    if (!forward->graph || attention_graph_select(forward->graph, 0, &err) < 0 ||
        run(forward, l->handle, &l->tensors, &err) < 0)
        return -1;
    wait_for_all();
    for (AttentionTensor t = ATTENTION_OUT; t <= ATTENTION_SUMS; t++)
        bad += scan(&forward->shape, t, fetch(&forward->shape, t, l->tensors.of[t])).bad;
    return bad;
}

/* Prints the line of a job. forward: for a backward job, the forward job that makes its inputs; otherwise NULL. */
static void look(const Look *l, const Job *forward, bool far)
{
    json_t *line = line_of(l, far), *engines = json_array();
    if (forward)
        json_object_set_new(line, "inputs_bad", json_integer(make_inputs(l, forward)));
    for (int i = 0; i < l->job->n_engines; i++)
        json_array_append_new(engines, look_at_engine(l, i));
    json_object_set_new(line, "engines", engines);
    first_line(line);
}

/* ---- the case ---- */

static bool is_late(void)
{
    if (first_left_sec() > late_sec)
        return false;
    first_line(json_pack("{s:s}", "not_run", "the rest: the case's time is over"));
    return true;
}

static Look look_of(const Job *job, cudnnHandle_t handle, bool far)
{
    Look l = {job, handle, far ? memory.at_far : memory.usual, NULL, !far};
    return l;
}

/* Checks a shape's four jobs: forward without and with a mask, then backward without and with a mask, each at usual
 * scores and at scores far below zero. */
static bool look_at_shape(const Job *jobs, void *q_lengths, void *kv_lengths, cudnnHandle_t handle)
{
    enum { JOBS = 4, MASKS = 2 };
    Expected *expected[2];
    bool late = false;
    for (int far = 0; far < 2; far++)
        expected[far] = expect(&jobs[0].shape, far); /* other threads plan the jobs meanwhile */
    for (int i = 0; i < JOBS; i++) {
        await_job(&jobs[i]);
        tell_plan(&jobs[i]);
    }
    for (int i = 0; i < 2 * JOBS && !late; i++) {
        const Job *job = &jobs[i / 2];
        const bool far = i % 2;
        Look l = look_of(job, handle, far);
        l.tensors.of[ATTENTION_Q_LENGTHS] = q_lengths;
        l.tensors.of[ATTENTION_KV_LENGTHS] = kv_lengths;
        l.expected = expected[far];
        late = is_late();
        if (!late && job->graph)
            look(&l, job->pass == ATTENTION_BACKWARD ? job - MASKS : NULL, far);
    }
    for (int far = 0; far < 2; far++)
        expected_free(expected[far]);
    return !late;
}

static void look_at_all(cudnnHandle_t handle)
{
    enum { JOBS = 4 };
    const Job *job = planning.jobs;
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++, job += JOBS) {
        void *q_lengths = lengths_of(shapes[i].q_tokens);
        if (!look_at_shape(job, q_lengths, lengths_of(shapes[i].kv_tokens), handle))
            return;
    }
    for (const Job *forward = job - JOBS; job < planning.jobs + planning.n; job++) {
        assert(job->groups);
        await_job(job);
        tell_plan(job);
        const Look l = look_of(job, handle, false);
        if (is_late())
            return;
        if (job->graph)
            look(&l, forward, false);
    }
}

static int open_all(cudnnHandle_t *ret)
{
    const CudaLibraries *libraries;
    Error err = ERROR_INIT;
    int r = cuda_libraries_open(&libraries, &err), major = 0, minor = 0;
    if (r < 0) {
        first_failed("the libraries", r, err.text);
        return r;
    }
    must(cudaSetDevice(0), "cudaSetDevice");
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "the GPU");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "the GPU");
    planning.architecture = 10 * major + minor;
    const cudnnStatus_t status = cudnnCreate(ret);
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    first_failed("cudnnCreate", (int)status, cudnnGetErrorString(status));
    return -EIO;
}

int first_attention(void)
{
    pthread_t threads[THREADS_MAX];
    cudnnHandle_t handle = NULL;
    int n_threads = 0;
    if (first_emulated()) {
        first_line(json_pack("{s:s}", "not_run", "emulated"));
        return 0;
    }
    int r = open_all(&handle);
    if (r < 0)
        return r;
    add_jobs();
    const int wanted = CLAMP((int)sysconf(_SC_NPROCESSORS_ONLN), 1, (int)THREADS_MAX);
    while (n_threads < wanted && pthread_create(&threads[n_threads], NULL, plan_many, NULL) == 0)
        n_threads++;
    if (n_threads == 0)
        return -EAGAIN;
    make_memory();
    look_at_all(handle);
    (void)pthread_mutex_lock(&planning.mutex);
    planning.stop = true;
    (void)pthread_mutex_unlock(&planning.mutex);
    for (int i = 0; i < n_threads; i++)
        (void)pthread_join(threads[i], NULL);
    return 0;
}
#endif
