/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - see session.h. */
#include "trainer/session/agreement.h"
#include "trainer/session/device.h"
#include "trainer/session/resume.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "data/order.h"
#include "protocol/paths.h"
#include "trainer/checkpoint/local.h"
#include "trainer/comm/bulk.h"
#include "trainer/session/checkpoint-search.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/initial-state.h"
#include "trainer/session/start-times.h"
#include "trainer/state/device-patience.h"

#include <string.h>

enum {
    REDUCTION_ALGORITHM = 1,
    CONNECT_SEC = 30,
    /* last resort: a daemon that notices a dead peer kills the rank long before */
    COLLECTIVE_SEC = 600,
    /* timeout of the writers' comm: a rank may upload for a long time while its store fails at times */
    REPORTS_SEC = 1800,
    PREFETCH_BYTES = 256 << 20,
};
static_assert(DEVICE_TIMEOUT_SEC + 60 <= COLLECTIVE_SEC,
              "a rank says that its device hangs before the others say that they lost it");

/* Reads the network's config, and checks that the data fit it. */
static int open_config(Session *s, Error *err)
{
    const Job *job = s->job;
    int r = unet_config_read(job->model.config_uri, store_get_uri, &s->config, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(exit_errno_of_named(r)));
    r = shapes_check(job, &s->config, dataset_shape(s->dataset), job->train.grain, err);
    return error_set_exit(err, r, EXIT_NEVER_RETRY);
}

static bool on_gpu(const Session *s) { return device_kind(s->device) == DEVICE_CUDA; }

static int plan_network(Session *s, const NetworkShape *shape, Error *err)
{
    int r = network_plan(s->device, &s->config, shape, &s->network, err);
    start_part("plans");
    /* The job is not to blame for plans that are made for other libraries than this node's, or for a broken GPU. */
    return error_set_exit(err, r,
                          r == -EPROTO || r == -EIO ? device_exit_code(r) : EXIT_NEVER_RETRY);
}

static int plan_memory(Session *s, Error *err)
{
    int r = memory_plan(s->job, s->network, dataset_shape(s->dataset), NULL, s->world_size,
                        &s->memory, err);
    if (r == 0)
        r = memory_check(&s->memory, device_memory_bytes(s->device), on_gpu(s), err);
    if (r < 0)
        (void)error_prefix(err, r, "%s", s->job->model.config_uri); /* r is returned below */
    return error_set_exit(err, r, EXIT_NEVER_RETRY);
}

static int allocate_network(Session *s, Error *err)
{
    int r = network_allocate(s->network, err);
    if (r == 0)
        r = grain_work_new(s->device, s->network, s->job, dataset_shape(s->dataset),
                           dataset_empty_text(s->dataset), &s->work, err);
    if (r == -ENOMEM) /* there may be enough memory at another time */
        return error_set_exit(err, memory_short(&s->memory, on_gpu(s), r, err), EXIT_RETRY);
    return error_set_exit(err, r, device_exit_code(r));
}

static int open_network(Session *s, const SessionAssignment *a, Error *err)
{
    const DatasetShape *data = dataset_shape(s->dataset);
    const NetworkShape shape = {.grain = (int)s->job->train.grain,
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens,
                                .backward = true};
    start_part("data");
    int r = session_open_device(s, a, &shape, err);
    if (r == 0)
        r = plan_network(s, &shape, err);
    if (r == 0)
        r = plan_memory(s, err);
    return r < 0 ? r : allocate_network(s, err);
}

/* Keeps the text of the device's plans, whose hash is in the numerics. */
static int keep_plans(Session *s, const json_t *numerics, Error *err)
{
    char hash[HASH_TEXT_BYTES];
    int r = device_plans(s->device, &s->plans);
    if (r < 0)
        return r == -ENOENT ? 0 : error_errno(err, r, "cannot tell the device's plans");
    const char *named = json_string_value(json_object_get(numerics, "plans"));
    assert(named && strcmp(named, hash_format(hash_bytes(s->plans, strlen(s->plans)), hash)) == 0);
    return 0;
}

/* Fills in one text about everything that this rank computes with: equal texts and equal canned grains mean equal
 * bits. */
static int fill_numerics(Session *s, Error *err)
{
    _cleanup_free_ char *device = NULL;
    int r = device_numerics(s->device, &device);
    if (r < 0)
        return error_errno(err, r, "cannot describe the device");
    _cleanup_json_ json_t *json = json_loads(device, 0, NULL);
    assert(json);
    r = keep_plans(s, json, err);
    if (r < 0)
        return r;
    json_object_set_new(json, "policy", json_string(network_policy(s->network)));
    _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text || strlen(text) >= sizeof(s->facts.numerics))
        return error_set(err, -E2BIG, "the numerics record does not fit %zu bytes",
                         sizeof(s->facts.numerics));
    (void)snprintf(s->facts.numerics, sizeof(s->facts.numerics), "%s", text);
    return 0;
}

static int open_state(Session *s, Error *err)
{
    const Job *job = s->job;
    const ParameterList *parameters = network_parameters(s->network);
    int r = train_state_new(s->device, parameters, s->rank, s->world_size, job->train.zero_stage,
                            job->train.ema.enabled, &s->state, err);
    if (r < 0)
        return r == -ENOMEM ? memory_short(&s->memory, on_gpu(s), r, err) : r;

    /* The canned grain uses the job's random initial weights, whatever is restored after it. */
    daemon_link_stage(s->link, 0, STAGE_STARTING);
    r = init_random(job, s->state, err);
    if (r < 0)
        return r;
    network_set_weights(s->network, s->state->weights);
    r = fill_numerics(s, err);
    if (r < 0)
        return r;
    r = fault("canned.compute");
    if (r < 0)
        (void)error_errno(err, r, "the canned grain: compute failed"); /* r is returned below */
    else
        r = canned_grain(s->work, &s->facts.canned_grain, err);
    if (r < 0)
        return error_set_exit(err, r,
                              r == -ENOMEM  ? EXIT_RETRY
                              : r == -EXDEV ? EXIT_NUMERICS
                                            : device_exit_code(r));
    return session_restore(s, err);
}

/* Fills in the job's identity. It includes inputs that the job's text only names: the network's config, the embedding
 * of the empty caption, and the facts of encoder.json about the data. */
static int identify(const Session *s, CheckpointFacts *ret, Error *err)
{
    _cleanup_free_ char *config = NULL;
    if (unet_config_format(&s->config, &config) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    const JobNamed named = dataset_job_named(s->dataset, config);
    if (job_terms_identity(s->job, &named, &ret->job_identity) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    ret->dataset_digest = dataset_digest(s->dataset);
    _cleanup_free_ char *terms = job_terms_format(s->job, &named);
    _cleanup_free_ char *data = dataset_digest_terms(s->dataset);
    if (terms)
        (void)snprintf(ret->job_terms, sizeof(ret->job_terms), "%s", terms);
    if (strlen(data) < sizeof(ret->dataset_terms))
        (void)snprintf(ret->dataset_terms, sizeof(ret->dataset_terms), "%s", data);
    return 0;
}

static int fill_facts(Session *s, const char *submission, Error *err)
{
    (void)snprintf(s->facts.job, sizeof(s->facts.job), "%s", s->job->name);
    (void)snprintf(s->facts.submission, sizeof(s->facts.submission), "%s", submission);
    s->facts.generation = s->generation;
    s->facts.order_algorithm = ORDER_ALGORITHM;
    s->facts.reduction_algorithm = REDUCTION_ALGORITHM;
    return identify(s, &s->facts, err);
}

static CommKey key_of(const Session *s)
{
    return (CommKey){.generation = s->generation, .secret = s->secret};
}

/* On rank 0 of several ranks, opens the store through which the other ranks find the comm. */
static int open_rendezvous(Session *s, const char *bind_address, Error *err)
{
    if (s->rank != 0 || s->world_size == 1)
        return 0;
    const CommKey key = key_of(s);
    return rendezvous_new(bind_address, s->world_size, &key, &s->rendezvous, err);
}

int session_open(DaemonLink *link, const SessionAssignment *a, Session **ret, Error *err)
{
    const ChannelAssign *assign = a->assign;
    _cleanup_(session_freep) Session *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->link = link;
    s->generation = a->generation;
    s->secret = a->secret;
    s->rank = assign->rank;
    s->world_size = assign->world_size;
    s->claim = a->claim;
    s->adopts = *assign->resume_uri && assign->adopt;
    s->folder_lock = -EBADF;

    int r = job_parse(a->job_source, assign->spec, strlen(assign->spec), &s->job, err);
    if (r == 0)
        r = paths_check_job(s->job, assign->resume_uri, getenv(PATHS_READ_VARIABLE),
                            getenv(PATHS_WRITE_VARIABLE), err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_NEVER_RETRY);
    if (s->world_size < 1 || s->world_size > s->job->train.n_grains || s->rank < 0 ||
        s->rank >= s->world_size) {
        r = error_set(err, -EINVAL, "rank %d of %d cannot run a job of %lld grains", s->rank,
                      s->world_size, (long long)s->job->train.n_grains);
        return error_set_exit(err, r, EXIT_NEVER_RETRY);
    }
    grain_share(s->job->train.n_grains, s->rank, s->world_size, &s->first_grain, &s->n_grains,
                &s->share);

    r = session_open_resume(s, a, err);
    if (r == 0)
        r = open_rendezvous(s, assign->bind_address, err);
    if (r < 0)
        return r;
    r = dataset_open_submitted(s->job, assign->sources, &s->dataset, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = open_config(s, err);
    if (r == 0)
        r = fill_facts(s, assign->submission, err);
    if (r == 0 && a->alone)
        r = session_find_resume(s, err);
    if (r == 0 && assign->find && s->rank == 0)
        r = checkpoint_search_report(link, s->store, &s->facts, assign->find == FIND_MUST, err);
    /* The facts are checked before the canned grain is computed, since another job's seed would change the grain,
     * too. */
    if (r == 0 && s->resume)
        r = error_set_exit(err, manifest_check_facts(s->resume, &s->facts, err), EXIT_NEVER_RETRY);
    if (r == 0)
        r = open_network(s, a, err);
    if (r == 0)
        r = open_state(s, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

/* ---- join ---- */

static int open_comms(Session *s, const char *address, const char *bind_address, Error *err)
{
    if (s->world_size == 1) {
        int r = comm_open_self(&s->train, err);
        return r < 0 ? r : comm_open_self(&s->reports, err);
    }
    char prefix[64];
    CommOptions options = {.rank = s->rank,
                           .size = s->world_size,
                           .rendezvous = address,
                           .prefix = prefix,
                           .bind_address = bind_address,
                           .key = key_of(s),
                           .connect_usec = CONNECT_SEC * USEC_PER_SEC,
                           .timeout_usec = COLLECTIVE_SEC * USEC_PER_SEC,
                           .unmet = &s->unmet};
    int r = bulk_offer(&options, err);
    if (r < 0)
        return r;
    (void)snprintf(prefix, sizeof(prefix), "g%lld/train", (long long)s->generation);
    r = comm_open_gloo(&options, &s->train, err);
    if (r < 0)
        return r;
    (void)snprintf(prefix, sizeof(prefix), "g%lld/bulk", (long long)s->generation);
    r = bulk_open(&options, &s->bulk, err);
    if (r < 0)
        return r;
    (void)snprintf(prefix, sizeof(prefix), "g%lld/reports", (long long)s->generation);
    options.timeout_usec = REPORTS_SEC * USEC_PER_SEC;
    return comm_open_gloo(&options, &s->reports, err);
}

static int open_writer(Session *s, Error *err)
{
    _cleanup_free_ char *config = NULL;
    int r = unet_config_format(&s->config, &config);
    if (r < 0)
        return error_errno(err, r, "cannot write the U-Net's config");
    CheckpointOptions options = {.store = s->store,
                                 .reports = s->reports,
                                 .parameters = network_parameters(s->network),
                                 .unet_config = config,
                                 .plans = s->plans,
                                 .plan_changes = s->plan_changes,
                                 .facts = s->facts,
                                 .claim = s->claim,
                                 .keep_last = s->job->checkpoint.keep_last,
                                 .keep_every = s->job->checkpoint.keep_every,
                                 .local = s->local,
                                 .blocking = s->job->checkpoint.blocking};
    r = checkpoint_writer_new(&options, &s->writer, err);
    if (r < 0)
        return r;
    Error said = ERROR_INIT;
    /* if this fails, saves fail, too, and training continues */
    if (checkpoint_prepare(s->writer, s->state, &said) < 0)
        log_warning("%s", said.text);
    /* A history in another folder stays there; this job's history begins with the adopted step. */
    if (s->rank == 0 && session_resumes_own(s))
        return checkpoint_adopt_history(s->writer, s->resume, err);
    return 0;
}

_Static_assert((int)CHANNEL_HELD_MAX <= (int)CHECKPOINT_HELD_MAX, "the writer takes all");

void session_hold(Session *s)
{
    const ChannelHeld held = daemon_link_held(s->link);
    if (s->rank == 0)
        checkpoint_hold(s->writer, held.steps, held.n);
}

/* Rank 0 claims the folder before any step is trained in vain. If the store does not answer, the first save claims
 * it. */
static int claim(Session *s, Error *err)
{
    Error said = ERROR_INIT;
    session_hold(s);
    int r = s->rank == 0 ? checkpoint_claim(s->writer, NULL, &said) : 0;
    if (r == -CHECKPOINT_NOT_OWNER || r == -EPROTONOSUPPORT)
        return error_set(err, r, "%s", said.text);
    if (r < 0)
        log_warning("nobody knows yet whose %s is: %s", store_uri(s->store), said.text);
    return 0;
}

void session_close_folder(Session *s)
{
    Error err = ERROR_INIT;
    if (s->rank == 0 && s->claim.alone && s->folder_lock < 0 && s->writer &&
        checkpoint_close(s->writer, &err) < 0)
        log_warning("the next run of it needs --take-over: %s", err.text);
}

static ExitCode exit_of_claim(int r)
{
    switch (r) {
    case -CHECKPOINT_NOT_OWNER:
        return EXIT_NOT_OWNER;
    case -EPROTONOSUPPORT:
        return EXIT_NEVER_RETRY;
    default:
        return EXIT_RETRY;
    }
}

int session_join(Session *s, const char *address, const char *bind_address, Error *err)
{
    daemon_link_stage(s->link, s->state->scalars.step, STAGE_JOINING);
    int r = open_comms(s, address, bind_address, err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_PEER_LOST);
    r = session_agree(s, err);
    if (r < 0)
        return r;
    s->rendezvous = rendezvous_free(s->rendezvous); /* all ranks are connected */
    if (s->secret)
        explicit_bzero(s->secret, COMM_SECRET_BYTES);
    s->secret = NULL;

    r = session_lock_folder(s, true, err);
    if (r == 0)
        r = open_writer(s, err);
    if (r == 0)
        r = claim(s, err);
    if (r < 0)
        return error_set_exit(err, r, exit_of_claim(r));
    if (s->local && session_resumes_own(s))
        checkpoint_local_tidy(s->local, s->resume);
    r = update_new(s->state, s->train, s->bulk, s->job, &s->update, err);
    if (r == -ETIMEDOUT || r == -EIO)
        return error_set_exit(err, r, device_exit_code(r));
    return r < 0 ? r
                 : loader_new(s->dataset, s->job, s->state->scalars.step, s->first_grain,
                              s->n_grains, PREFETCH_BYTES, &s->loader, err);
}

Session *session_free(Session *s)
{
    /* Keeps, until the process ends, a session that a hanging device may use; volatile, since no code reads `kept`. */
    static _unused_ Session *volatile kept;
    if (!s)
        return NULL;
    /* After another failure the device may still compute a grain, and so use the session. */
    if (s->device && !device_is_idle(s->device)) {
        kept = s;
        return NULL;
    }
    (void)loader_free(s->loader);
    (void)checkpoint_writer_free(s->writer);
    (void)update_free(s->update);
    (void)comm_free(s->reports);
    (void)comm_free(s->bulk);
    (void)comm_free(s->train);
    (void)rendezvous_free(s->rendezvous);
    (void)train_state_free(s->state);
    (void)grain_work_free(s->work);
    (void)network_free(s->network);
    (void)device_free(s->device);
    free(s->plans);
    (void)dataset_free(s->dataset);
    (void)manifest_free(s->resume);
    (void)checkpoint_search_free(s->search);
    (void)checkpoint_local_free(s->local);
    (void)store_free(s->resume_store);
    (void)fd_close(s->folder_lock);
    (void)store_free(s->store);
    (void)job_free(s->job);
    free(s);
    return NULL;
}
