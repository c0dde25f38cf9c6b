/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.c - see agreement.h. */
#include "trainer/session/agreement.h"

#include "base/json/json-diff.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "protocol/exit-code.h"

#include <string.h>

/* size of the text of differences: with the words before it, the text fits into a message to the daemon */
enum { DIFFERENCES_BYTES = 170 };

/* ---- comparing with the checkpoint ---- */

static int refuse_numerics(const CheckpointFacts *mine, const CheckpointFacts *theirs,
                           const char *whose, Error *err)
{
    char differences[DIFFERENCES_BYTES];
    if (facts_diff_numerics(theirs, mine, differences, sizeof(differences)) > 0)
        return error_set(err, -EXDEV, "the numerics of this rank differ from %s: %s", whose,
                         differences);
    return error_set(err, -EXDEV, "numerics %.180s differ from %s: %.180s", mine->numerics, whose,
                     theirs->numerics);
}

static int check_numerics(const CheckpointFacts *mine, const CheckpointFacts *theirs, Error *err)
{
    if (strcmp(mine->numerics, theirs->numerics) != 0)
        return refuse_numerics(mine, theirs, "the checkpoint's", err);
    if (!hash_equal(mine->canned_grain, theirs->canned_grain)) {
        char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
        return error_set(err, -EXDEV,
                         "the canned grain's hash %s differs from the checkpoint's: %s",
                         hash_format(mine->canned_grain, a), hash_format(theirs->canned_grain, b));
    }
    return 0;
}

/* If the job's plans replace the checkpoint's, everything else must be equal. The canned grain is not compared, since
 * other plans give it other bits. */
static int check_changed(const CheckpointFacts *mine, const CheckpointFacts *theirs, Error *err)
{
    _cleanup_json_ json_t *a = json_loads(mine->numerics, 0, NULL),
                          *b = json_loads(theirs->numerics, 0, NULL);
    (void)json_object_del(a, "plans"); /* fails if there are no plans, which is allowed */
    (void)json_object_del(b, "plans"); /* fails if there are no plans, which is allowed */
    return a && b && json_equal(a, b)
               ? 0
               : refuse_numerics(mine, theirs, "the checkpoint's in more than the plans", err);
}

int session_check_resumed(const Session *s, Error *err)
{
    const CheckpointFacts *theirs = manifest_facts(s->resume);
    return s->changes_plans ? check_changed(&s->facts, theirs, err)
                            : check_numerics(&s->facts, theirs, err);
}

/* ---- comparing with the other ranks ---- */

typedef struct SessionAgreement { /* what all ranks must have in common; no padding */
    int64_t generation, step;
    Hash job, dataset, manifest, numerics, canned_grain, scalars;
} SessionAgreement;

static SessionAgreement agreement_of(const Session *s)
{
    const TrainScalars *scalars = &s->state->scalars;
    const int64_t counters[] = {scalars->step, scalars->position, scalars->adam_t,
                                scalars->n_accepted};
    return (SessionAgreement){.generation = s->generation,
                              .step = scalars->step,
                              .job = s->facts.job_identity,
                              .dataset = s->facts.dataset_digest,
                              .manifest = s->resume ? manifest_hash(s->resume) : (Hash){0, 0},
                              .numerics = hash_bytes(s->facts.numerics, strlen(s->facts.numerics)),
                              .canned_grain = s->facts.canned_grain,
                              .scalars = hash_bytes(counters, sizeof(counters))};
}

/* Rank 0's texts. SessionAgreement has only the hashes of these texts. */
typedef struct RankZero {
    CheckpointFacts facts;
    char *plans; /* owned; NULL: rank 0 has no plans, or they were not received */
} RankZero;

static int broadcast_facts(Session *s, CheckpointFacts *facts, Error *err)
{
    int r = comm_broadcast(s->train, 0, facts->numerics, sizeof(facts->numerics), err);
    if (r == 0)
        r = comm_broadcast(s->train, 0, facts->job_terms, sizeof(facts->job_terms), err);
    if (r == 0)
        r = comm_broadcast(s->train, 0, facts->dataset_terms, sizeof(facts->dataset_terms), err);
    /* the texts come from another process, so each may lack the NUL at its end */
    facts->numerics[sizeof(facts->numerics) - 1] = '\0';
    facts->job_terms[sizeof(facts->job_terms) - 1] = '\0';
    facts->dataset_terms[sizeof(facts->dataset_terms) - 1] = '\0';
    return r;
}

static int broadcast_plans(Session *s, char **ret, Error *err)
{
    int64_t n = s->rank == 0 && s->plans ? (int64_t)strlen(s->plans) : 0;
    int r = comm_broadcast(s->train, 0, &n, sizeof(n), err);
    if (r < 0 || n <= 0 || n > DEVICE_PLANS_MAX)
        return r;
    _cleanup_free_ char *text = calloc((size_t)n + 1, 1);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (s->rank == 0)
        memcpy(text, s->plans, (size_t)n);
    r = comm_broadcast(s->train, 0, text, (size_t)n, err);
    if (r == 0)
        *ret = TAKE_PTR(text);
    return r;
}

/* If any rank differs, all ranks know it, and rank 0 broadcasts its texts. A rank of a version without this broadcast
 * ends at once, and then the other ranks only know that something differs. */
static void request_of_rank_zero(Session *s, const SessionAgreement *all, RankZero *ret)
{
    Error ignored = ERROR_INIT;
    bool differ = false;
    for (int i = 1; i < s->world_size && !differ; i++)
        differ = !hash_equal(all[i].numerics, all[0].numerics) ||
                 !hash_equal(all[i].job, all[0].job) || !hash_equal(all[i].dataset, all[0].dataset);
    if (!differ)
        return;
    ret->facts = s->facts;
    if (broadcast_facts(s, &ret->facts, &ignored) < 0 ||
        broadcast_plans(s, &ret->plans, &ignored) < 0)
        ret->facts = (CheckpointFacts){0};
}

/* Adds the keys in which two plan sets differ: the numerics have only the hashes of the sets. */
static void add_plans(const Session *s, const RankZero *zero, char *text, size_t size)
{
    char differences[DIFFERENCES_BYTES];
    const size_t used = strlen(text);
    if (zero->plans && s->plans &&
        json_diff_texts(zero->plans, s->plans, differences, sizeof(differences)) > 0)
        (void)snprintf(text + used, size - used, "; in the plans %s", differences);
}

static int refuse_as_zero(const Session *s, const RankZero *zero, Error *err)
{
    char differences[DIFFERENCES_BYTES + 200];
    if (facts_diff_numerics(&zero->facts, &s->facts, differences, DIFFERENCES_BYTES) == 0)
        return error_set(err, -EXDEV, "numerics %.300s differ from rank 0's", s->facts.numerics);
    add_plans(s, zero, differences, sizeof(differences));
    return error_set(err, -EXDEV, "the numerics of this rank differ from rank 0's: %s",
                     differences);
}

static int refuse_data(const Session *s, const RankZero *zero, Error *err)
{
    char differences[DIFFERENCES_BYTES];
    const size_t n = facts_diff_dataset(&zero->facts, &s->facts, differences, sizeof(differences));
    return error_set(err, -EXDEV,
                     "the dataset's digest differs from rank 0's: this node sees other data%s%s",
                     n > 0 ? ": " : "", differences);
}

static int refuse_job(const Session *s, const RankZero *zero, Error *err)
{
    char differences[DIFFERENCES_BYTES];
    const size_t n = facts_diff_job(&zero->facts, &s->facts, differences, sizeof(differences));
    return error_set(err, -EXDEV, "the job's identity differs from rank 0's%s%s", n > 0 ? ": " : "",
                     differences);
}

/* Every rank compares itself with rank 0, so that a rank that differs reports it. */
static int compare(const Session *s, const SessionAgreement *all, const RankZero *zero, Error *err)
{
    const SessionAgreement *mine = &all[s->rank], *its = &all[0];
    if (!hash_equal(mine->numerics, its->numerics))
        return error_set_exit(err, refuse_as_zero(s, zero, err), EXIT_NUMERICS);
    if (!hash_equal(mine->canned_grain, its->canned_grain))
        return error_set_exit(err,
                              error_set(err, -EXDEV,
                                        "the canned grain's hash differs from rank 0's"),
                              EXIT_NUMERICS);
    if (mine->generation != its->generation || mine->step != its->step ||
        !hash_equal(mine->manifest, its->manifest) || !hash_equal(mine->scalars, its->scalars))
        return error_set_exit(
            err,
            error_set(err, -EXDEV,
                      "this rank restored step %lld, rank 0 step %lld, or from another manifest",
                      (long long)mine->step, (long long)its->step),
            EXIT_RETRY);
    if (!hash_equal(mine->dataset, its->dataset))
        return error_set_exit(err, refuse_data(s, zero, err), EXIT_DATA_CORRUPT);
    if (!hash_equal(mine->job, its->job))
        return error_set_exit(err, refuse_job(s, zero, err), EXIT_NEVER_RETRY);
    for (int i = 1; i < s->world_size; i++)
        if (memcmp(&all[i], its, sizeof(*its)) != 0)
            return error_set_exit(err,
                                  error_set(err, -EXDEV, "rank %d does not agree with rank 0", i),
                                  EXIT_PEER_LOST);
    return 0;
}

int session_agree(Session *s, Error *err)
{
    const SessionAgreement mine = agreement_of(s);
    RankZero zero = {0};
    _cleanup_free_ SessionAgreement *all = calloc((size_t)s->world_size, sizeof(mine));
    if (!all)
        return error_set(err, -ENOMEM, "out of memory");
    int r = comm_all_gather(s->train, &mine, all, sizeof(mine), err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_PEER_LOST);
    request_of_rank_zero(s, all, &zero);
    r = compare(s, all, &zero, err);
    free(zero.plans);
    return r;
}
