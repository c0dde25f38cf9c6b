/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c - see pictures.h: the questions in their order, and the handling of a child that fails.
 *
 * The questions are in a ring. Each is given to one child, which has a queue of the questions that it has not answered.
 * The oldest in the queue is the one that the child works at, and it is blamed if the child fails. The other questions
 * are sent to a new child, without blame. */
#include "encoders/pictures/pictures.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "encoders/pictures/child.h"

#include <poll.h>
#include <string.h>

enum { TRIES = 2, TICK_MSEC = 1000, HELD_BYTES_MAX = PICTURE_FILE_BYTES_MAX };
static const uint64_t PATIENCE_USEC = 60 * USEC_PER_SEC;
/* Replaces PATIENCE_USEC in tests that set the fault point pictures.patience. */
static const uint64_t SHORT_PATIENCE_USEC = 3 * USEC_PER_SEC;

typedef struct Question {
    const void *data;
    size_t n_bytes;
    int worker; /* -1: the question is answered without a worker */
    uint32_t place;
    int tries;
    bool answered;
    int r;
    Error err;
} Question;

typedef struct Worker {
    Child child;
    int queue[PICTURES_PER_CHILD]; /* indices of questions without an answer, oldest first */
    int n_queued;
    size_t held_bytes;    /* bytes of files whose answers were not taken */
    uint32_t places;      /* bit i is set if place i is in use */
    uint64_t waited_usec; /* time spent waiting for the answer to the oldest question */
} Worker;

struct Pictures {
    PicturesOptions options;
    Worker *workers;
    Question *questions; /* a ring of `room` questions */
    int room, first, n_asked;
};

int pictures_room(const Pictures *pictures) { return pictures->room; }
int pictures_requested(const Pictures *pictures) { return pictures->n_asked; }

int pictures_filter(const Pictures *pictures)
{
    int r = 0;
    for (int i = 0; i < pictures->options.n_children && r == 0; i++)
        r = pictures->workers[i].child.filter;
    return r;
}

pid_t pictures_child_pid(const Pictures *pictures, int child)
{
    assert(child >= 0 && child < pictures->options.n_children);
    return pictures->workers[child].child.pid;
}

int pictures_open(const PicturesOptions *options, Pictures **ret, Error *err)
{
    assert(pictures_child_requested); /* otherwise a child would do what this program does */
    int r = picture_recipe_check(&options->recipe, err);
    if (r < 0)
        return r;
    if (options->n_children < 1 || options->n_children > PICTURES_CHILDREN_MAX)
        return error_set(err, -EINVAL, "%d decoder processes, not 1 to %d", options->n_children,
                         PICTURES_CHILDREN_MAX);
    _cleanup_(pictures_freep) Pictures *pictures = memory_new(Pictures);
    pictures->options = *options;
    if (pictures->options.patience_usec == 0)
        pictures->options.patience_usec =
            fault("pictures.patience") < 0 ? SHORT_PATIENCE_USEC : PATIENCE_USEC;
    pictures->room = options->n_children * PICTURES_PER_CHILD;
    pictures->questions = memory_zeroed((size_t)pictures->room, sizeof(Question));
    pictures->workers = memory_zeroed((size_t)options->n_children, sizeof(Worker));
    for (int i = 0; i < options->n_children; i++)
        pictures->workers[i].child = (Child){.socket = -EBADF, .memory_fd = -EBADF};
    for (int i = 0; i < options->n_children; i++) {
        r = child_open(options->program ? options->program : "/proc/self/exe", &options->recipe,
                       &pictures->workers[i].child, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(pictures);
    return 0;
}

Pictures *pictures_free(Pictures *pictures)
{
    if (!pictures)
        return NULL;
    for (int i = 0; i < pictures->options.n_children; i++)
        child_close(&pictures->workers[i].child);
    free(pictures->workers);
    free(pictures->questions);
    free(pictures);
    return NULL;
}

static Question *oldest_of(Pictures *pictures, const Worker *worker)
{
    assert(worker->n_queued > 0);
    return &pictures->questions[worker->queue[0]];
}

/* Removes the oldest question from the child's queue, and stores its answer. */
static void close_oldest(Pictures *pictures, Worker *worker, int r, const Error *err)
{
    Question *question = oldest_of(pictures, worker);
    question->answered = true;
    question->r = r;
    question->err = *err;
    worker->n_queued--;
    memmove(worker->queue, worker->queue + 1, (size_t)worker->n_queued * sizeof(int));
    worker->waited_usec = 0;
}

/* Kills a child that failed, blames the question that it worked at, and sends the other questions to a new child. If
 * the new child dies during this, it may have answered its oldest question already: receive_answer() reads that answer
 * first and detects the end afterwards. */
static int replace(Pictures *pictures, Worker *worker, const char *why, Error *err)
{
    char how[64];
    child_kill(&worker->child, how, sizeof(how));
    if (worker->n_queued > 0 && ++oldest_of(pictures, worker)->tries == TRIES) {
        Error text = ERROR_INIT;
        (void)error_set(&text, -ENOTRECOVERABLE,
                        "%d decoder processes failed; the last one %s (%s)", TRIES, why, how);
        close_oldest(pictures, worker, -ENOTRECOVERABLE, &text);
    }
    worker->waited_usec = 0;
    int r = child_restart(&worker->child, err);
    for (int i = 0; i < worker->n_queued && r == 0; i++) {
        const Question *question = &pictures->questions[worker->queue[i]];
        r = child_request(&worker->child, question->place, question->data, question->n_bytes);
        if (r < 0 && r != -EPIPE)
            (void)error_errno(err, r, "cannot ask a decoder process");
    }
    return r == -EPIPE ? 0 : r;
}

/* Receives all answers that a child has sent. */
static int receive_answer(Pictures *pictures, Worker *worker, Error *err)
{
    while (worker->n_queued > 0) {
        ChildAnswer answer;
        ssize_t n = child_receive(&worker->child, &answer, sizeof(answer));
        if (n == -EAGAIN)
            return 0;
        if (n == 0)
            return replace(pictures, worker, "died", err);
        if (child_answer_check(&answer, (size_t)n, oldest_of(pictures, worker)->place, &answer) < 0)
            return replace(pictures, worker, "gave an answer that is none", err);
        if (answer.r < 0)
            return replace(pictures, worker, "was out of memory", err);
        close_oldest(pictures, worker, answer.r, &answer.err);
    }
    return 0;
}

/* Waits until a child sends an answer, or for one tick. Only time spent waiting counts against a child, and at most one
 * tick per call: a machine that was suspended, or a caller that computed, is not the child's fault. */
static int wait_and_receive(Pictures *pictures, Error *err)
{
    struct pollfd waits[PICTURES_CHILDREN_MAX];
    int n = pictures->options.n_children;
    uint64_t tick_usec = MIN(TICK_MSEC * USEC_PER_MSEC, pictures->options.patience_usec);
    for (int i = 0; i < n; i++) {
        const Worker *worker = &pictures->workers[i];
        waits[i] = (struct pollfd){.fd = worker->n_queued > 0 ? worker->child.socket : -1,
                                   .events = POLLIN};
    }
    uint64_t before = clock_boottime_usec();
    int ready = poll(waits, (nfds_t)n, (int)DIV_ROUND_UP(tick_usec, USEC_PER_MSEC));
    if (ready < 0 && errno != EINTR)
        return error_errno(err, -errno, "cannot wait for decoder processes");
    uint64_t waited = MIN(clock_boottime_usec() - before, tick_usec);
    for (int i = 0; i < n; i++) {
        Worker *worker = &pictures->workers[i];
        if (worker->n_queued == 0)
            continue;
        int n_queued = worker->n_queued, r = receive_answer(pictures, worker, err);
        if (r < 0)
            return r;
        if (worker->n_queued == n_queued)
            worker->waited_usec += waited;
        if (worker->waited_usec >= pictures->options.patience_usec)
            r = replace(pictures, worker, "was silent", err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Returns the child with the fewest questions that has a free place and room for the bytes; NULL: there is no such
 * child. */
static Worker *choose_worker(Pictures *pictures, size_t n_bytes)
{
    Worker *best = NULL;
    for (int i = 0; i < pictures->options.n_children; i++) {
        Worker *worker = &pictures->workers[i];
        bool fits = worker->places == 0 || worker->held_bytes + n_bytes <= HELD_BYTES_MAX;
        if (worker->places != (1U << PICTURES_PER_CHILD) - 1 && fits &&
            (!best || worker->n_queued < best->n_queued))
            best = worker;
    }
    return best;
}

int pictures_request(Pictures *pictures, const void *data, size_t n_bytes, Error *err)
{
    if (pictures->n_asked == pictures->room)
        return error_set(err, -EAGAIN, "%d pictures are asked", pictures->room);
    int index = (pictures->first + pictures->n_asked) % pictures->room;
    Question *question = &pictures->questions[index];
    *question = (Question){.data = data, .n_bytes = n_bytes, .worker = -1};
    if (n_bytes == 0 || n_bytes > PICTURE_FILE_BYTES_MAX) { /* the verdict needs no decoder */
        question->r =
            picture_decode(&pictures->options.recipe, data, n_bytes, NULL, &question->err);
        question->answered = true;
        pictures->n_asked++;
        return 0;
    }
    Worker *worker = choose_worker(pictures, n_bytes);
    if (!worker)
        return error_set(err, -EAGAIN, "the decoder processes have no room for %zu bytes", n_bytes);
    uint32_t place = 0;
    while (worker->places & 1U << place)
        place++;
    worker->places |= 1U << place;
    question->worker = (int)(worker - pictures->workers);
    question->place = place;
    worker->queue[worker->n_queued++] = index;
    worker->held_bytes += n_bytes;
    pictures->n_asked++;
    int r = child_request(&worker->child, place, data, n_bytes);
    /* The answers that a child sent before it died can still be received; receive_answer() detects the end
     * afterwards. */
    return r == 0 || r == -EPIPE ? 0 : error_errno(err, r, "cannot ask a decoder process");
}

int pictures_take(Pictures *pictures, uint8_t *ret_rgb, Error *err)
{
    assert(pictures->n_asked > 0);
    const Question *question = &pictures->questions[pictures->first];
    while (!question->answered) {
        int r = wait_and_receive(pictures, err);
        if (r < 0)
            return r;
    }
    const PictureRecipe *recipe = &pictures->options.recipe;
    if (question->worker >= 0) {
        Worker *worker = &pictures->workers[question->worker];
        if (question->r == 0)
            memcpy(ret_rgb, worker->child.memory + child_rgb_at(recipe, question->place),
                   (size_t)recipe->side * (size_t)recipe->side * 3);
        child_forget(&worker->child, question->place, question->n_bytes);
        worker->places &= ~(1U << question->place);
        worker->held_bytes -= question->n_bytes;
    }
    if (question->r != 0 && err)
        *err = question->err;
    pictures->first = (pictures->first + 1) % pictures->room;
    pictures->n_asked--;
    return question->r;
}
