/* SPDX-License-Identifier: Apache-2.0 */
/* owner.c - see owner.h. */
#include "trainer/checkpoint/owner.h"

#include "base/clock.h"
#include "base/log.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/list.h"

#include <string.h>
#include <unistd.h>

enum {
    CLAIM_TRIES = 8,   /* tries to claim a number, if other writers are faster */
    OWNERS_KEPT = 256, /* number of owners whose records stay; older records are removed */
    /* pause before a claim is read back, if two puts of one number may both succeed */
    READ_BACK_SEC = 2,
};

struct CheckpointOwner {
    Store *store;
    OwnerRecord record;
    /* text of the owner's object, freed with this struct; NULL: the stored object is damaged, so only the manifest of
     * the checkpoint that the job resumes from says who the owner is */
    char *text;
    bool puts_if_absent;
    /* numbers of the older owners that wrote parts of this job's history */
    int64_t holds[OWNERS_KEPT];
    size_t n_holds;
};

/* The numbers of all owners in the store, ascending. */
typedef struct Owners {
    int64_t *numbers;
    size_t n;
} Owners;

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int list_owners(Store *store, Owners *ret, Error *err)
{
    StoreList list = {0};
    int r = store_list(store, OWNER_PREFIX, OWNERS_LISTED_MAX, &list, err);
    if (r < 0)
        return r;
    Owners o = {.numbers = calloc(list.n_objects + 1, sizeof(*o.numbers))};
    for (size_t i = 0; o.numbers && i < list.n_objects; i++)
        if (owner_key_parse(list.objects[i].key, &o.numbers[o.n]) == 0)
            o.n++;
    store_list_clear(&list);
    if (!o.numbers)
        return error_set(err, -ENOMEM, "%s: out of memory", store_uri(store));
    qsort(o.numbers, o.n, sizeof(*o.numbers), compare_numbers);
    *ret = o;
    return 0;
}

static void owners_clear(Owners *o) { free(o->numbers); }

static int64_t highest_of(const Owners *o) { return o->n > 0 ? o->numbers[o->n - 1] : 0; }

/* Reads the record of the owner `number`. ret_text may be NULL. */
static int read_owner(Store *store, int64_t number, OwnerRecord *ret, char **ret_text, Error *err)
{
    char key[OWNER_KEY_MAX], source[CHECKPOINT_URI_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    owner_key_format(number, key);
    (void)snprintf(source, sizeof(source), "%s/%s", store_uri(store), key);
    int r = store_get(store, key, OWNER_OBJECT_MAX, &text, &n, err);
    if (r == 0)
        r = owner_parse(source, text, n, ret, err);
    if (r < 0)
        return r;
    ret->number = number;
    if (ret_text)
        *ret_text = TAKE_PTR(text);
    return 0;
}

static bool is_damage(int r) { return r == -EBADMSG || r == -EFBIG; }

/* r: error of reading an earlier owner's record. Returns whether the record can be ignored: it is damaged, missing or
 * from a newer program, so nothing shows that the owner wrote a part of this job's history. */
static bool says_nothing(int r) { return is_damage(r) || r == -ENOENT || r == -EPROTONOSUPPORT; }

/* Returns -CHECKPOINT_NOT_OWNER with a text about the owner. other: the owner's record; NULL if it cannot be read. */
static int refuse(Store *store, int64_t number, const OwnerRecord *other, Error *err)
{
    char who[256] = "somebody whose object cannot be read";
    if (other)
        owner_describe(other, who, sizeof(who));
    return error_set(err, -CHECKPOINT_NOT_OWNER,
                     "%.160s belongs to %s, by its " OWNER_PREFIX
                     "%lld; nothing is written here beside it. To go on instead of it: sdctl job "
                     "start --resume MANIFEST, or sdtrainer run --take-over",
                     store_uri(store), who, (long long)number);
}

/* ---- claim ---- */

typedef struct Claimant {
    Store *store;
    const CheckpointFacts *facts;
    const CheckpointClaim *claim;
    const Manifest *resumes;
    bool puts_if_absent;
} Claimant;

/* Manifests without an owner may be used only by a job that continues from one of these manifests. */
static int check_unclaimed(const Claimant *c, Error *err)
{
    StoreList list = {0};
    if (c->resumes)
        return 0;
    int r = checkpoint_list(c->store, &list, err);
    if (r == 0 && list.n_objects > 0)
        r = error_set(err, -CHECKPOINT_NOT_OWNER,
                      "%.160s holds %zu checkpoints already (%s) and this job goes on from none of "
                      "them",
                      store_uri(c->store), list.n_objects, list.objects[0].key);
    store_list_clear(&list);
    return r;
}

static bool is_of_submission(const Claimant *c, const OwnerRecord *o)
{
    return strcmp(o->submission, c->facts->submission) == 0;
}

/* Formats the claim of an operator's request. A submission and a request always give the same claim, so that a request
 * counts only once. */
static void format_act(const Claimant *c, char ret[33])
{
    char words[160];
    int n = snprintf(words, sizeof(words), "%s %s", c->facts->submission, c->claim->act);
    (void)hash_format(hash_bytes(words, (size_t)n), ret);
}

/* *ret: whether this submission has owned the folder before. If the claim has an act, only an earlier claim with the
 * same act counts. */
static int was_owner(const Claimant *c, const Owners *owners, bool *ret, Error *err)
{
    char act[33] = "";
    *ret = false;
    if (c->claim->act)
        format_act(c, act);
    for (size_t i = owners->n; i-- > 0 && !*ret;) {
        OwnerRecord o;
        Error ignored = ERROR_INIT; /* a record that cannot be read or is missing is ignored */
        int r = read_owner(c->store, owners->numbers[i], &o, NULL, &ignored);
        if (r < 0 && !says_nothing(r))
            return error_set(err, r, "%s", ignored.text);
        *ret = r == 0 && is_of_submission(c, &o) && (!*act || strcmp(o.claim, act) == 0);
    }
    return 0;
}

static void format_closed(int64_t number, char ret[OWNER_CLOSED_KEY_MAX])
{
    (void)snprintf(ret, OWNER_CLOSED_KEY_MAX, OWNER_CLOSED "%lld", (long long)number);
}

/* *ret: whether the run that owns the folder has recorded that it has ended. A run that was killed has not. */
static int is_closed(const Claimant *c, const OwnerRecord *o, bool *ret, Error *err)
{
    char key[OWNER_CLOSED_KEY_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    *ret = false;
    if (!c->claim->alone || !o->alone)
        return 0;
    format_closed(o->number, key);
    int r = store_get(c->store, key, OWNER_OBJECT_MAX, &text, &n, err);
    if (r == -ENOENT || is_damage(r))
        return 0;
    *ret = r == 0 && n == strlen(o->claim) && memcmp(text, o->claim, n) == 0;
    return r;
}

/* Returns 1 if the folder belongs to this submission (*ret is its claim), 0 if the folder may be taken over. */
static int judge_highest(const Claimant *c, const Owners *owners, CheckpointOwner *ret, Error *err)
{
    const int64_t highest = highest_of(owners);
    OwnerRecord o;
    _cleanup_free_ char *text = NULL;
    int r = read_owner(c->store, highest, &o, &text, err);
    const bool known = r == 0;
    if (r < 0 && !is_damage(r))
        return r;
    if (known && is_of_submission(c, &o)) {
        ret->record = o;
        ret->text = TAKE_PTR(text);
        return 1;
    }
    if (!known && c->resumes && c->resumes->name.owner == highest &&
        strcmp(c->resumes->facts.submission, c->facts->submission) == 0) {
        log_warning("%s; the checkpoint gone on from says that it is ours", err->text);
        ret->record = (OwnerRecord){.number = highest};
        return 1;
    }
    bool before = true, closed = false;
    if (known && (r = is_closed(c, &o, &closed, err)) < 0)
        return r;
    if (closed)
        return 0;
    switch (c->claim->takes) {
    case OWNER_TAKES_ANY:
        if (!c->claim->act)
            return 0;
        r = was_owner(c, owners, &before, err);
        if (r < 0 || !before)
            return r;
        break;
    case OWNER_TAKES_ALONE:
        if (known && o.alone)
            return 0;
        break;
    case OWNER_TAKES_ONCE:
        r = was_owner(c, owners, &before, err);
        if (r < 0 || !before)
            return r;
        break;
    case OWNER_TAKES_NONE:
        break;
    }
    return refuse(c->store, highest, known ? &o : NULL, err);
}

static int fill_record(const Claimant *c, int64_t number, OwnerRecord *ret, Error *err)
{
    *ret = (OwnerRecord){.number = number,
                         .alone = c->claim->alone,
                         .pid = getpid(),
                         .generation = c->facts->generation,
                         .job_identity = c->facts->job_identity,
                         .dataset_digest = c->facts->dataset_digest,
                         .claimed_usec = (int64_t)clock_realtime_usec()};
    (void)snprintf(ret->submission, sizeof(ret->submission), "%s", c->facts->submission);
    if (strlen(c->facts->job_terms) < sizeof(ret->job_terms))
        (void)snprintf(ret->job_terms, sizeof(ret->job_terms), "%s", c->facts->job_terms);
    if (strlen(c->facts->dataset_terms) < sizeof(ret->dataset_terms))
        (void)snprintf(ret->dataset_terms, sizeof(ret->dataset_terms), "%s",
                       c->facts->dataset_terms);
    (void)snprintf(ret->job, sizeof(ret->job), "%s", c->facts->job);
    if (gethostname(ret->host, sizeof(ret->host) - 1) < 0)
        (void)snprintf(ret->host, sizeof(ret->host), "?");
    if (c->claim->act) {
        format_act(c, ret->claim);
        return 0;
    }
    int r = hash_draw(ret->claim);
    return r < 0 ? error_errno(err, r, "cannot draw a claim's id") : 0;
}

/* Checks that the object under this owner's number has this owner's claim. */
static int read_back(CheckpointOwner *o, Error *err)
{
    OwnerRecord found;
    int r = read_owner(o->store, o->record.number, &found, NULL, err);
    if (r == 0 && strcmp(found.claim, o->record.claim) != 0)
        return refuse(o->store, found.number, &found, err);
    return r;
}

/* Puts a claim with this number. Returns -EEXIST if another writer was first. */
static int put_claim(const Claimant *c, int64_t number, CheckpointOwner *o, Error *err)
{
    char key[OWNER_KEY_MAX];
    if (number > OWNER_NUMBER_MAX)
        return error_set(err, -ENOSPC, "%s has had %d owners", store_uri(c->store),
                         OWNER_NUMBER_MAX);
    int r = fill_record(c, number, &o->record, err);
    if (r < 0)
        return r;
    free(o->text);
    o->text = NULL;
    if (owner_format(&o->record, &o->text) < 0)
        return error_set(err, -ENOMEM, "%s: out of memory", store_uri(c->store));
    owner_key_format(number, key);
    r = store_put(c->store, key, &(struct iovec){o->text, strlen(o->text)}, 1, STORE_IF_ABSENT,
                  err);
    if (r < 0 || c->puts_if_absent)
        return r;
    /* After this pause every writer that listed the owners before this put has put its claim, too. */
    for (unsigned left = READ_BACK_SEC; left > 0;)
        left = sleep(left);
    r = read_back(o, err);
    return r == -CHECKPOINT_NOT_OWNER ? -EEXIST : r;
}

static int claim_once(const Claimant *c, CheckpointOwner *o, Owners *owners, Error *err)
{
    int r = list_owners(c->store, owners, err);
    if (r < 0)
        return r;
    r = highest_of(owners) == 0 ? check_unclaimed(c, err) : judge_highest(c, owners, o, err);
    if (r != 0)
        return MIN(r, 0);
    const int64_t before = highest_of(owners);
    r = put_claim(c, before + 1, o, err);
    if (r == 0)
        log_info("%s is ours as " OWNER_PREFIX "%lld%s", store_uri(c->store),
                 (long long)(before + 1), before ? ", taken over from the one before" : "");
    return r;
}

/* Logs why the work of an earlier owner is not part of this history: the owner had another job or other data. */
static void report_other(const OwnerRecord *o, const CheckpointFacts *facts)
{
    CheckpointFacts theirs = {.job_identity = o->job_identity, .dataset_digest = o->dataset_digest};
    char differences[300];
    (void)snprintf(theirs.job_terms, sizeof(theirs.job_terms), "%s", o->job_terms);
    (void)snprintf(theirs.dataset_terms, sizeof(theirs.dataset_terms), "%s", o->dataset_terms);
    if (facts_diff_job(&theirs, facts, differences, sizeof(differences)) == 0 &&
        facts_diff_dataset(&theirs, facts, differences, sizeof(differences)) == 0)
        (void)snprintf(differences, sizeof(differences), "of it only the hashes are known");
    log_info("what " OWNER_PREFIX "%lld wrote belongs to another job or other data, and stays: %s",
             (long long)o->number, differences);
}

/* Notes which older owners wrote parts of this job's history. Records of the oldest owners are removed. */
static int note_history(CheckpointOwner *o, const CheckpointFacts *facts, const Owners *owners,
                        Error *err)
{
    size_t n_older = 0;
    while (n_older < owners->n && owners->numbers[n_older] < o->record.number)
        n_older++;
    for (size_t i = n_older; i-- > 0;) {
        OwnerRecord found;
        char key[OWNER_KEY_MAX];
        Error why = ERROR_INIT;
        owner_key_format(owners->numbers[i], key);
        if (n_older - i >= OWNERS_KEPT) {
            char closed[OWNER_CLOSED_KEY_MAX];
            /* most owners have not put this object, which is not an error */
            Error none = ERROR_INIT;
            format_closed(owners->numbers[i], closed);
            (void)store_delete(o->store, closed, &none);
            if (store_delete(o->store, key, &why) < 0)
                log_warning("%s stays: %s", key, why.text);
            continue;
        }
        int r = read_owner(o->store, owners->numbers[i], &found, NULL, &why);
        if (r < 0 && !says_nothing(r))
            return error_set(err, r, "%s", why.text);
        if (r < 0)
            continue;
        if (hash_equal(found.job_identity, facts->job_identity) &&
            hash_equal(found.dataset_digest, facts->dataset_digest))
            o->holds[o->n_holds++] = found.number;
        else
            report_other(&found, facts);
    }
    return 0;
}

int checkpoint_owner_claim(Store *store, const CheckpointFacts *facts, const CheckpointClaim *claim,
                           const Manifest *resumes, CheckpointOwner **ret, Error *err)
{
    _cleanup_(checkpoint_owner_freep) CheckpointOwner *o = calloc(1, sizeof(*o));
    Claimant c = {.store = store, .facts = facts, .claim = claim, .resumes = resumes};
    _cleanup_(owners_clear) Owners owners = {0};
    if (!o)
        return error_set(err, -ENOMEM, "%s: out of memory", store_uri(store));
    o->store = store;
    int r = store_puts_if_absent(store, &c.puts_if_absent, err);
    if (r < 0)
        return r;
    o->puts_if_absent = c.puts_if_absent;
    r = -EEXIST;
    for (int try = 0; r == -EEXIST && try < CLAIM_TRIES; try++) {
        owners_clear(&owners);
        owners = (Owners){0};
        r = claim_once(&c, o, &owners, err);
    }
    if (r == 0)
        r = note_history(o, facts, &owners, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(o);
    return 0;
}

CheckpointOwner *checkpoint_owner_free(CheckpointOwner *o)
{
    if (o) {
        free(o->text);
        free(o);
    }
    return NULL;
}

/* ---- after the claim ---- */

/* Puts an owner object again that was removed although no other writer has taken the folder over. */
static int put_again(CheckpointOwner *o, Error *err)
{
    char key[OWNER_KEY_MAX];
    owner_key_format(o->record.number, key);
    if (!o->text)
        return 0;
    int r = store_put(o->store, key, &(struct iovec){o->text, strlen(o->text)}, 1, STORE_IF_ABSENT,
                      err);
    if (r == 0)
        log_warning("%s/%s was gone and is put again", store_uri(o->store), key);
    return r == -EEXIST ? read_back(o, err) : r;
}

int checkpoint_owner_look(CheckpointOwner *o, Error *err)
{
    _cleanup_(owners_clear) Owners owners = {0};
    int r = list_owners(o->store, &owners, err);
    if (r < 0)
        return r;
    int64_t highest = highest_of(&owners);
    char key[OWNER_KEY_MAX];
    uint64_t n_bytes;
    if (highest <= o->record.number && o->record.number < OWNER_NUMBER_MAX) {
        /* The listing may lag behind, so the next number is looked up. */
        Error none = ERROR_INIT;
        owner_key_format(o->record.number + 1, key);
        r = store_head(o->store, key, &n_bytes, &none);
        if (r == 0)
            highest = o->record.number + 1;
        else if (r != -ENOENT)
            return error_set(err, r, "%s", none.text);
    }
    if (highest > o->record.number) {
        OwnerRecord other;
        Error ignored = ERROR_INIT;
        const bool known = read_owner(o->store, highest, &other, NULL, &ignored) == 0;
        return refuse(o->store, highest, known ? &other : NULL, err);
    }
    if (highest < o->record.number)
        return put_again(o, err);
    if (o->puts_if_absent || !o->text)
        return 0;
    r = read_back(o, err);
    return is_damage(r) ? 0 : r; /* a damaged object is not another writer's claim */
}

int checkpoint_owner_close(CheckpointOwner *o, Error *err)
{
    char key[OWNER_CLOSED_KEY_MAX];
    int r = checkpoint_owner_look(o, err);
    if (r < 0 || !o->text) /* the claim is not known */
        return r;
    format_closed(o->record.number, key);
    return store_put(o->store, key, &(struct iovec){o->record.claim, strlen(o->record.claim)}, 1, 0,
                     err);
}

int64_t checkpoint_owner_number(const CheckpointOwner *o) { return o->record.number; }

bool checkpoint_owner_holds(const CheckpointOwner *o, int64_t number)
{
    if (number == o->record.number)
        return true;
    for (size_t i = 0; i < o->n_holds; i++)
        if (o->holds[i] == number)
            return true;
    return false;
}
