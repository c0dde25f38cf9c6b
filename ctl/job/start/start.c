/* SPDX-License-Identifier: Apache-2.0 */
/* start.c - `sdctl job start`: checks the job as far as this machine can, then writes the records specs/<job> and
 * desired/<job>. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "ctl/arguments.h"
#include "ctl/job/start/edit.h"
#include "ctl/job/start/memory.h"
#include "ctl/job/start/notes.h"
#include "ctl/job/start/program.h"
#include "ctl/job/verbs.h"
#include "ctl/job/watch/watch.h"
#include "ctl/model.h"
#include "ctl/requester.h"
#include "ctl/waiting.h"
#include "data/dataset-look.h"
#include "data/index-open.h"
#include "protocol/channel.h"
#include "protocol/owner.h"
#include "store/access-check.h"
#include "store/store.h"
#include "trainer/begin/begin.h"

#include <limits.h>
#include <string.h>

enum {
    OBJECTS_LISTED_MAX = 100000,
    STORE_SEC = 20, /* time limit of a request to a store */
};

typedef struct StartOptions {
    const char *file, *name, *resume;
    OptionTexts sets;
    int priority; /* OPTION_NO_PRIORITY: not given */
    bool dry_run, queue, watch;
} StartOptions;

#define OPTIONS_STRUCT StartOptions
static const CtlOption options[] = {
    {"file", 'f', "FILE", "the job file", TAKES(TEXT, file)},
    {"set", 0, "KEY=VALUE", "a key of the job file, as train.steps=500; again: one more",
     TAKES(TEXTS, sets)},
    {"name", 0, "NAME", "the job's name, instead of the file's", TAKES(TEXT, name)},
    {"dry-run", 0, NULL, "check it all, and submit nothing", TAKES(NOTHING, dry_run)},
    {"resume", 0, "URI", "go on from this manifest.json, of any job", TAKES(TEXT, resume)},
    {"priority", 0, "N", "in the queue, more goes first; the job file's by default",
     TAKES_NUMBER(priority, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX, "-1000 to 1000")},
    {"queue", 0, NULL, "although no node that is known could hold it, or nobody answers",
     TAKES(NOTHING, queue)},
    OPTION_WATCH,
};
const CtlOptions job_start_options = CTL_OPTIONS(options, .priority = OPTION_NO_PRIORITY);

/* A job that is to be submitted. */
typedef struct JobDraft {
    const char *source;         /* the file's name */
    const char *resume;         /* value of --resume; NULL: not given */
    const ModelJob *given_back; /* an existing job whose spec is lost; NULL: the job is new */
    int priority;
    char *text;
    Job *job;
    DatasetLook look; /* facts about the job's data */
    JobMemory memory;
} JobDraft;

/* Refuses a relative path, because ranks run in other folders and on other machines. */
static int check_absolute(const JobDraft *d, const char *key, const char *uri, Error *err)
{
    if (*uri == '/' || strstr(uri, "://"))
        return 0;
    if (strncmp(uri, "s3/", 3) == 0 || strncmp(uri, "s3:", 3) == 0)
        return error_set(err, -EINVAL, "%s: %s: \"%s\" is not a URI (did you mean \"s3://%s\"?)",
                         d->source, key, uri, uri + 2 + strspn(uri + 2, ":/"));
    return error_set(err, -EINVAL,
                     "%s: %s: \"%s\" is relative; ranks run elsewhere, so give an absolute path or "
                     "a URI",
                     d->source, key, uri);
}

/* Adds the key's name to the error. For S3, adds a hint that credentials or settings of this machine may be the
 * cause. */
static int refuse(const JobDraft *d, const char *key, const char *uri, int r, Error *err)
{
    const char *hint = "";
    if (strncmp(uri, "s3://", 5) == 0 && r == -EACCES)
        hint = " (asked with the caller's own credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID, ...)";
    else if (strncmp(uri, "s3://", 5) == 0 && r == -EHOSTUNREACH)
        hint = " (asked from this machine: AWS_ENDPOINT_URL, AWS_REGION)";
    return error_prefix(err, -EINVAL, "%s: %s%s", d->source, key, hint);
}

/* Checks that the object of this URI exists. */
static int check_object(const JobDraft *d, const char *key, const char *uri, Error *err)
{
    const char *slash = strrchr(uri, '/');
    int r = check_absolute(d, key, uri, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *folder = memory_bytes(uri, (size_t)(slash - uri));
    _cleanup_(store_freep) Store *store = NULL;
    uint64_t n_bytes;
    r = store_open(*folder ? folder : "/", &store, err);
    if (r == 0)
        r = store_head(store, slash + 1, &n_bytes, err);
    return r < 0 ? refuse(d, key, uri, r, err) : 0;
}

/* If the store does not answer this machine, only prints a note, because the ranks will check again. Refuses any other
 * error. */
static int refuse_unless_silent(const JobDraft *d, const char *key, const char *uri, int r,
                                Error *err)
{
    if (r != -EHOSTUNREACH)
        return refuse(d, key, uri, r, err);
    (void)fprintf(stderr,
                  "sdctl: note: %s: %s was not looked at, its store does not answer here; the "
                  "ranks will look: %s\n",
                  d->source, key, err->text);
    *err = ERROR_INIT;
    return 0;
}

/* Checks the data as a rank will do: columns, encodings and samples. */
static int check_data(JobDraft *d, Error *err)
{
    const Job *job = d->job;
    for (size_t i = 0; i < job->data.n_streams; i++) {
        char key[48];
        const char *uri = job->data.streams[i].uri;
        _cleanup_(store_freep) Store *store = NULL;
        uint64_t n_bytes;
        (void)snprintf(key, sizeof(key), "data.streams[%zu].uri", i);
        int r = check_absolute(d, key, uri, err);
        if (r < 0)
            return r;
        r = store_open(uri, &store, err);
        if (r == 0)
            r = index_head(store, &n_bytes, err);
        if (r < 0)
            return refuse(d, key, uri, r, err);
    }
    if (job->data.empty_text_uri) {
        int r = check_object(d, "data.empty_text", job->data.empty_text_uri, err);
        if (r < 0)
            return r;
    }
    int r = dataset_look(job, &d->look, err);
    return r < 0 ? error_prefix(err, -EINVAL, "%s", d->source) : 0;
}

static int check_plans(const JobDraft *d, Error *err)
{
    const char *uri = d->job->train.plans_uri;
    int r = uri ? check_absolute(d, "train.plans", uri, err) : 0;
    if (r < 0)
        return r;
    r = begin_check_plans(d->job, err);
    return r < 0 ? refuse_unless_silent(d, "train.plans", uri, r, err) : 0;
}

static int check_init(const JobDraft *d, const UnetConfig *config, Error *err)
{
    const char *uri = d->job->model.init_uri;
    int r = uri ? check_absolute(d, "model.init", uri, err) : 0;
    if (r < 0)
        return r;
    r = begin_check_init(d->job, config, err);
    return r < 0 ? refuse_unless_silent(d, "model.init", uri, r, err) : 0;
}

/* Checks the manifest that --resume names. */
static int check_resume(const JobDraft *d, Error *err)
{
    const JobDraft option = {.source = "--resume"};
    UnetConfig config;
    _cleanup_free_ CheckpointFacts *facts = memory_new(CheckpointFacts);
    _cleanup_free_ char *text = NULL, *terms = NULL;
    int r = check_absolute(&option, "manifest", d->resume, err);
    if (r == 0) /* check_model() has already read the config successfully */
        r = unet_config_read(d->job->model.config_uri, store_get_uri, &config, err);
    if (r == 0 && unet_config_format(&config, &text) < 0)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = dataset_look_identity(d->job, text, &facts->job_identity, &terms, err);
    if (r < 0)
        return r;
    (void)snprintf(facts->job_terms, sizeof(facts->job_terms), "%s", terms ? terms : "");
    r = begin_check_resume(d->job, &config, facts, d->resume, err);
    return r < 0 ? refuse_unless_silent(&option, "manifest", d->resume, r, err) : 0;
}

static int check_model(JobDraft *d, Error *err)
{
    UnetConfig config;
    const Job *job = d->job;
    int r = check_absolute(d, "model.config", job->model.config_uri, err);
    if (r < 0)
        return r;
    r = unet_config_read(job->model.config_uri, store_get_uri, &config, err);
    if (r < 0)
        return refuse(d, "model.config", job->model.config_uri, r, err);
    r = d->look.sides_known ? shapes_check(job, &config, &d->look.shape, job->train.grain, err)
                            : 0; /* if sides are unknown, the ranks check the shapes */
    if (r == 0 && d->look.sides_known &&
        job->train.device == JOB_DEVICE_CPU) /* for a GPU, the node's ranks check the memory */
        r = job_memory_plan(job, &config, &d->look, &d->memory, err);
    if (r < 0)
        return error_prefix(err, r, "%s: model.config", d->source);
    r = check_plans(d, err);
    return r < 0 ? r : check_init(d, &config, err);
}

/* Tells in *ret whether the checkpoint URI has a manifest already. */
static int find_manifest(const char *uri, bool *ret, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    StoreList list = {0};
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = store_list(store, "step-", OBJECTS_LISTED_MAX, &list, err);
    *ret = r == -E2BIG; /* more objects than the limit: assumed to be checkpoints */
    for (size_t i = 0; r == 0 && i < list.n_objects; i++) {
        const char *slash = strrchr(list.objects[i].key, '/');
        *ret = *ret || (slash && strcmp(slash, "/manifest.json") == 0);
    }
    store_list_clear(&list);
    return r == -E2BIG ? 0 : r;
}

/* Finds the present owner of the checkpoint URI (protocol/owner.h). ret is empty if there is no owner. */
static int find_owner(const char *uri, char *ret, size_t size, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    StoreList list = {0};
    int64_t highest = 0, number;
    *ret = '\0';
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = store_list(store, OWNER_PREFIX, OWNERS_LISTED_MAX, &list, err);
    for (size_t i = 0; r == 0 && i < list.n_objects; i++)
        if (owner_key_parse(list.objects[i].key, &number) == 0)
            highest = MAX(highest, number);
    store_list_clear(&list);
    if (r < 0 || highest == 0)
        return r;
    char key[OWNER_KEY_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    OwnerRecord owner;
    Error ignored = ERROR_INIT; /* the folder has an owner even if the object cannot be read */
    owner_key_format(highest, key);
    if (store_get(store, key, OWNER_OBJECT_MAX, &text, &n, &ignored) == 0 &&
        owner_parse(key, text, n, &owner, &ignored) == 0)
        owner_describe(&owner, ret, size);
    else
        (void)snprintf(ret, size, "somebody (%s cannot be read)", key);
    return 0;
}

static int check_checkpoints(const JobDraft *d, Error *err)
{
    bool used;
    const char *uri = d->job->checkpoint.uri;
    int r = check_absolute(d, "checkpoint.uri", uri, err);
    if (r < 0)
        return r;
    r = find_manifest(uri, &used, err);
    if (r < 0)
        return refuse(d, "checkpoint.uri", uri, r, err);
    char owner[256];
    r = find_owner(uri, owner, sizeof(owner), err);
    if (r < 0)
        return refuse(d, "checkpoint.uri", uri, r, err);
    if (used && !d->resume)
        return error_set(err, -EEXIST,
                         "%s: checkpoint.uri: %s holds checkpoints already%s%s; give another URI "
                         "(--set checkpoint.uri=...), or --resume MANIFEST to go on from one of "
                         "them",
                         d->source, uri, *owner ? ", those of " : "", owner);
    if (*owner && !d->resume)
        return error_set(err, -EEXIST,
                         "%s: checkpoint.uri: %s belongs to %s, which has saved nothing yet; give "
                         "another URI",
                         d->source, uri, owner);
    if (!d->resume)
        return 0;
    return check_resume(d, err);
}

/* Returns an existing job whose spec record is missing or cannot be read, or NULL. */
static const ModelJob *find_lost(const Model *model, const char *name)
{
    const ModelJob *job = model_job(model, name);
    bool lost = job && !job->has_spec && !job->has_foreign_spec;
    bool deleted = lost && job->has_desired && job->desired.state == DESIRED_DELETED;
    bool there =
        lost && (job->has_world || job->has_phase || job->desired_revision || job->spec_revision);
    return there && !deleted ? job : NULL;
}

static bool is_edited(const StartOptions *o) { return o->sets.n > 0 || o->name; }

static int draft_read(const Arguments *a, const char *file, JobDraft *d, Error *err)
{
    const StartOptions *o = arguments_own(a);
    *d = (JobDraft){.source = file, .resume = o->resume};
    int r = file_read(file, JOB_TEXT_MAX, &d->text, NULL, err);
    if (r == 0 && is_edited(o)) {
        _cleanup_free_ char *text = TAKE_PTR(d->text);
        r = job_edit(file, text, &o->sets, o->name, &d->text, err);
    }
    if (r == 0)
        r = job_parse_any(file, d->text, strlen(d->text), &d->job, err);
    if (r == 0)
        r = channel_check_spec(file, d->text, err);
    if (r == 0 && d->job->kind != JOB_TRAIN)
        return program_check(file, d->job, d->resume, err);
    Waiting *waiting = waiting_begin("the stores that the job names");
    if (r == 0)
        r = check_data(d, err);
    if (r == 0)
        r = check_model(d, err);
    if (r == 0)
        r = check_checkpoints(d, err);
    waiting = waiting_end(waiting);
    return r;
}

static void draft_clear(JobDraft *d)
{
    d->job = job_free(d->job);
    free(d->text);
    d->text = NULL;
}

/* Tells whether two URIs name the same place, such as file:///a/b/ and /a/b. */
static bool same_place(const char *a, const char *b)
{
    _cleanup_(store_freep) Store *one = NULL, *other = NULL;
    Error ignored = ERROR_INIT; /* URIs that cannot be opened count as different */
    return store_open(a, &one, &ignored) == 0 && store_open(b, &other, &ignored) == 0 &&
           strcmp(store_uri(one), store_uri(other)) == 0;
}

/* Refuses a checkpoint URI that another job uses: each job would mistake the other's checkpoints for its own. */
static int check_others(const JobDraft *d, const Model *model, Error *err)
{
    for (size_t i = 0; i < model->n_jobs; i++) {
        const ModelJob *other = &model->jobs[i];
        _cleanup_(job_freep) Job *spec = NULL;
        Error ignored = ERROR_INIT; /* the leader reports errors of that job */
        if (!other->has_spec || strcmp(other->name, d->job->name) == 0 ||
            job_parse_any(other->name, other->spec.spec, strlen(other->spec.spec), &spec,
                          &ignored) < 0)
            continue;
        if (!spec->checkpoint.uri || !d->job->checkpoint.uri || spec->kind == JOB_EVAL ||
            d->job->kind == JOB_EVAL)
            continue; /* an evaluation saves nothing */
        if (!model_has_ended(other) && same_place(spec->checkpoint.uri, d->job->checkpoint.uri))
            return error_set(err, -EEXIST, "%s: checkpoint.uri: job %s, which is %s, saves to %s",
                             d->source, other->name, job_phase_name(model_phase(other)),
                             d->job->checkpoint.uri);
    }
    return 0;
}

/* Refuses a new job if the leader has no room for it, because the leader would ignore the job. */
static int check_room(const JobDraft *d, const Model *model, Error *err)
{
    const Crowd c = model_crowd(model);
    if (c.max_jobs == 0 || c.jobs < c.max_jobs || model_job(model, d->job->name))
        return 0;
    return error_set(err, -ENOSPC,
                     "cluster %s has %d jobs, %d of which have ended, and its leader has room for "
                     "%d (max_jobs); sdctl job delete removes one that has ended",
                     model->cluster, c.jobs, c.ended, c.max_jobs);
}

/* Writes the lost spec again. The spec gets the job's old submission id, so that the job keeps its history. */
static int give_back(CtlClient *client, const JobDraft *d, SpecRecord *spec, Error *err)
{
    const ModelJob *job = d->given_back;
    char key[KEY_MAX], guard[KEY_MAX], program_key[KEY_MAX];
    bool done;
    const char *submission = job->phase.submission[0]   ? job->phase.submission
                             : job->world.submission[0] ? job->world.submission
                                                        : job->checkpoints.submission;
    if (submission[0])
        memcpy(spec->submission, submission, sizeof(spec->submission));
    _cleanup_free_ char *text = spec_record_encode(spec, NULL);
    _cleanup_free_ char *program = program_encode(d->text, spec);
    const bool has_program = job_is_program(d->job);
    const EtcdCompare unchanged = {.key = key_of(client->cluster, KEY_SPECS, job->name, guard),
                                   .target = ETCD_MOD_REVISION,
                                   .equals = job->spec_revision};
    const EtcdOp puts[] = {
        {.kind = ETCD_PUT,
         .key = key_of(client->cluster, KEY_SPECS, job->name, key),
         .value = text},
        {.kind = ETCD_PUT,
         .key = key_of(client->cluster, KEY_PROGRAMS, job->name, program_key),
         .value = program},
    };
    int r = client_txn(client, &unchanged, 1, puts, has_program ? 2 : 1, &done, err);
    if (has_program)
        r = program_explain(d->source, r, err);
    return r < 0 || done
               ? r
               : error_set(err, -EAGAIN, "specs/%s was changed meanwhile; try again", job->name);
}

static int refuse_taken(const JobDraft *d, Error *err)
{
    return error_set(err, -EEXIST,
                     "%s: name: a job %s is there already; --name NAME gives this one another, "
                     "sdctl job delete %s removes one that has ended",
                     d->source, d->job->name, d->job->name);
}

/* Writes spec and desired in one transaction, unless the name is taken. */
static int submit(CtlClient *client, const JobDraft *d, Error *err)
{
    const Job *job = d->job;
    SpecRecord spec = {.spec = d->text, .submitted_usec = clock_realtime_usec()};
    const DesiredRecord desired = {.state = DESIRED_RUNNING,
                                   .priority = d->priority,
                                   .min = job->world.min,
                                   .max = job->world.max};
    _Static_assert(sizeof(spec.sources) == JOB_SOURCES_MAX, "as long as ranks take it");
    (void)dataset_sources_format(&d->look.sources, spec.sources);
    (void)requester_text(spec.by);
    int r = hash_draw(spec.submission);
    if (r < 0)
        return error_errno(err, r, "cannot draw the submission's id");
    if (d->resume && snprintf(spec.resume_uri, sizeof(spec.resume_uri), "%s", d->resume) >=
                         (int)sizeof(spec.resume_uri))
        return error_set(err, -EINVAL, "--resume: %.40s... is too long", d->resume);
    const bool has_program = job_is_program(job);
    if (has_program)
        spec.program = hash_bytes(d->text, strlen(d->text));
    if (d->given_back)
        return give_back(client, d, &spec, err);
    _cleanup_free_ char *program = program_encode(d->text, &spec);
    _cleanup_free_ char *spec_text = spec_record_encode(&spec, NULL);
    _cleanup_free_ char *desired_text = desired_record_encode(&desired, NULL);

    static const KeyKind kinds[] = {KEY_SPECS, KEY_DESIRED, KEY_WORLDS, KEY_PHASES};
    char keys[ELEMENTSOF(kinds)][KEY_MAX];
    EtcdCompare is_free[ELEMENTSOF(kinds)];
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        is_free[i] = (EtcdCompare){.key = key_of(client->cluster, kinds[i], job->name, keys[i]),
                                   .target = ETCD_CREATE_REVISION,
                                   .equals = 0};
    char program_key[KEY_MAX];
    const EtcdOp puts[] = {{.kind = ETCD_PUT, .key = keys[0], .value = spec_text},
                           {.kind = ETCD_PUT, .key = keys[1], .value = desired_text},
                           {.kind = ETCD_PUT,
                            .key = key_of(client->cluster, KEY_PROGRAMS, job->name, program_key),
                            .value = program}};
    bool done;
    r = client_txn(client, is_free, ELEMENTSOF(is_free), puts, has_program ? 3 : 2, &done, err);
    if (has_program)
        r = program_explain(d->source, r, err);
    if (r < 0 || done)
        return r;
    return refuse_taken(d, err);
}

/* Returns the number of slots that all known nodes, including cordoned and lost nodes, have for the job; INT_MAX:
 * unknown. */
static int known_slots(const Model *model, const Job *job)
{
    int slots = 0;
    for (size_t i = 0; i < model->n_nodes; i++) {
        const NodeRecord *node = &model->nodes[i];
        int n = job->kind != JOB_TRAIN                 ? program_slots_of(node, job)
                : job->train.device == JOB_DEVICE_CUDA ? MIN(node->n_slots, node->n_gpus)
                                                       : node->n_slots;
        slots += model_is_admitted(model, node) ? n : 0;
    }
    /* A lost node may return with any number of slots. */
    for (size_t i = 0; i < model->n_health; i++)
        if (!model_node(model, model->health[i].node))
            slots += RECORD_SLOTS_MAX;
    return model->n_nodes > 0 ? slots : INT_MAX;
}

/* Refuses a job that could never start, instead of letting it wait without a report. */
static int check_slots(const JobDraft *d, const Model *model, const Arguments *a, Error *err)
{
    const StartOptions *o = arguments_own(a);
    const int slots = known_slots(model, d->job), min = d->job->world.min;
    const bool gpu = d->job->train.device == JOB_DEVICE_CUDA;
    const char *part = d->job->kind != JOB_EVAL         ? "train"
                       : d->job->eval.work == EVAL_GRID ? "grid"
                                                        : "loss";
    if (o->queue || min <= slots)
        return 0;
    if (job_is_program(d->job))
        return program_check_slots(d->source, d->job, slots, err);
    if (gpu && slots == 0)
        return error_set(err, -ENOSPC,
                         "%s: %s.device: \"cuda\" needs %d slot%s that %s a GPU, and no node "
                         "that is known has a GPU; --queue submits it all the same",
                         d->source, part, min, min == 1 ? "" : "s", min == 1 ? "has" : "have");
    return error_set(
        err, -ENOSPC,
        "%s: world.min: %d ranks are needed at least, and the nodes that are known have "
        "%d slot%s%s; --queue submits it all the same",
        d->source, min, slots, slots == 1 ? "" : "s",
        !gpu         ? ""
        : slots == 1 ? " that has a GPU"
                     : " that have a GPU");
}

/* Refuses a cluster name without any record, which is probably misspelt. If the controllers are only down for a while,
 * other records exist. */
static int check_cluster(const Model *model, const Arguments *a, Error *err)
{
    const StartOptions *o = arguments_own(a);
    if (o->queue || model->n_candidates || model->n_nodes || model->n_health || model->n_jobs)
        return 0;
    return error_set(
        err, -ENOENT,
        "cluster %s: nobody answers to that name: no controller, no node and no job is "
        "there; is --cluster (SDTRAIN_CLUSTER) right? --queue submits it all the same",
        model->cluster);
}

/* Refuses the name of a job that is stopped or has failed, because that job can be started again without deleting
 * it. */
static int check_name(const JobDraft *d, const Model *model, Error *err)
{
    const ModelJob *job = model_job(model, d->job->name);
    JobPhase phase = job && job->has_spec ? model_phase(job) : PHASE_PENDING;
    if (phase != PHASE_STOPPED && phase != PHASE_FAILED)
        return 0;
    return error_set(err, -EEXIST,
                     "%s: name: a job %s is there and is %s; sdctl job start %s goes on from its "
                     "newest checkpoint, sdctl job delete %s forgets it, --name gives this one "
                     "another name",
                     d->source, job->name, job_phase_name(phase), job->name, job->name);
}

/* Returns the job file's path, or NULL. A job's name contains neither '/' nor '.', so an operand with one of them is a
 * path. */
static const char *file_of(const Arguments *a)
{
    const StartOptions *o = arguments_own(a);
    return o->file ? o->file : a->operand && strpbrk(a->operand, "/.") ? a->operand : NULL;
}

static int refuse_words(const Arguments *a, const char *file)
{
    const StartOptions *o = arguments_own(a);
    if (a->operand && o->file)
        return arguments_refuse(a->verb,
                                "\"%s\" is one word too many: FILE is given, and NAME goes on with "
                                "the file that the job was submitted with (--name gives a new job "
                                "its name)",
                                a->operand);
    if (!a->operand && !file)
        return arguments_refuse(a->verb,
                                "FILE (a job file) or NAME (a job that has ended) is needed");
    if (!file && (o->resume || o->queue || o->dry_run || is_edited(o)))
        return arguments_refuse(a->verb,
                                "NAME goes on with the file that the job was submitted with, so it "
                                "takes no --resume, --queue, --set, --name or --dry-run");
    if (o->dry_run && o->watch)
        return arguments_refuse(a->verb, "--dry-run submits nothing that --watch could show");
    return -1;
}

/* Checks everything that can be checked before the job is submitted. */
static int check_all(JobDraft *d, const Model *model, const Arguments *a, const Error *taken,
                     Error *err)
{
    const StartOptions *o = arguments_own(a);
    d->given_back = find_lost(model, d->job->name);
    int r = check_cluster(model, a, err);
    if (r == 0 && !d->given_back)
        r = check_name(d, model, err);
    if (r == 0 && taken->code < 0 && !d->given_back) {
        *err = *taken;
        r = -EEXIST;
    }
    if (r == 0)
        r = check_others(d, model, err);
    if (r == 0)
        r = check_room(d, model, err);
    if (r == 0 && job_is_program(d->job))
        r = program_check_leave(d->source, d->job, model, err);
    if (r == 0 && d->job->kind == JOB_EVAL)
        r = program_check_followed(d->source, d->job, model, err);
    if (r == 0)
        r = check_slots(d, model, a, err);
    if (r == 0 && !o->queue)
        r = job_memory_check(&d->memory, d->source, model, err);
    return r;
}

static void print_submitted(const JobDraft *d, const Model *model, const char *how)
{
    const Job *job = d->job;
    if (job->kind != JOB_TRAIN) {
        program_print(job, how);
        return;
    }
    printf("job %s %s: %lld steps of %lld samples on %d to %d ranks\n", job->name, how,
           (long long)job->train.steps, (long long)job->train.global_batch, job->world.min,
           job->world.max);
    job_notes_print(job, &d->look, &d->memory, model);
}

/* Refuses a name that is taken, for --dry-run. Without --dry-run, the transaction of submit() finds a taken name. */
static int check_free(const JobDraft *d, const Model *model, Error *err)
{
    const ModelJob *job = model_job(model, d->job->name);
    if (d->given_back || !job ||
        !(job->has_spec || job->has_desired || job->has_world || job->has_phase))
        return 0;
    return refuse_taken(d, err);
}

/* Checks the job for --dry-run. If no etcd is given, only the file is checked. */
static int rehearse(const Arguments *a, JobDraft *d, const Error *taken, Error *err)
{
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, err);
    const bool alone = r == -EDESTADDRREQ;
    if (r == 0)
        r = check_all(d, model, a, taken, err);
    if (r == 0)
        r = check_free(d, model, err);
    if (alone && taken->code < 0) {
        *err = *taken;
        r = -EEXIST;
    } else if (alone) {
        r = 0;
    }
    if (r < 0)
        return r;
    print_submitted(d, model, "would be submitted");
    if (job_is_program(d->job))
        program_print_environment(d->job);
    printf(alone ? "the file is good; no etcd is named, so the cluster was not asked\n"
                 : "nothing was submitted (--dry-run)\n");
    return 0;
}

static int submit_checked(const Arguments *a, JobDraft *d, const Error *taken, Error *err)
{
    CtlClient client = {0};
    _cleanup_(model_freep) Model *model = NULL;
    int r = client_open(&a->client, &client, err);
    if (r == 0)
        r = model_read(&client, &model, err);
    if (r == 0)
        r = check_all(d, model, a, taken, err);
    if (r == 0)
        r = submit(&client, d, err);
    client_close(&client);
    if (r == 0)
        print_submitted(d, model, "is submitted");
    return r;
}

int job_start(const Arguments *a)
{
    const StartOptions *o = arguments_own(a);
    const char *file = file_of(a);
    int r = refuse_words(a, file);
    if (r >= 0)
        return r;
    if (!file)
        return job_start_again(a, o->priority, o->watch);
    store_requests_within(STORE_SEC);
    Error err = ERROR_INIT, taken = ERROR_INIT;
    JobDraft draft = {0};
    char name[JOB_NAME_MAX + 1] = "";
    r = draft_read(a, file, &draft, &err);
    if (r == -EEXIST) { /* not an error if this start restores a lost job file */
        taken = err;
        r = 0;
    }
    if (r == 0) {
        draft.priority = o->priority != OPTION_NO_PRIORITY ? o->priority : draft.job->priority;
        (void)snprintf(name, sizeof(name), "%s", draft.job->name);
        r = o->dry_run ? rehearse(a, &draft, &taken, &err)
                       : submit_checked(a, &draft, &taken, &err);
    }
    draft_clear(&draft);
    if (r < 0)
        return ctl_fail(&err, r);
    return o->watch ? job_watch(&a->client, name) : CTL_DONE;
}
