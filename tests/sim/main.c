/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program `sim`: runs schedules and reports which of them break an invariant.
 *
 *     sim [--nodes N] --seed S [--verbose]      one schedule
 *     sim [--nodes N] --seeds A..B [--first]    many, on all cores; --first ends at the first broken one, --verbose
 *                                               prints a line for each: its events and the digest of its history
 *     sim [--nodes N] --fresh COUNT             new seeds, drawn from the clock
 *     sim --file FILE                           each line: "seed nodes", then a note on the bug that was found
 *
 * --broken FILE: a broken schedule is added to that file, as a line of tests/sim/seeds. SDTRAIN_SIM_SEEDS=A..B repeats
 * the seeds that --fresh has drawn.
 *
 * Every schedule is run twice and must have the same history. */
#include "tests/sim/schedule.h"

#include "base/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 64, BROKEN_MAX = 20, NODES_DEFAULT = 8, SCHEDULES_MAX = 1 << 20 };

typedef struct Schedule {
    uint64_t seed;
    int n_nodes;
} Schedule;

typedef struct Broken {
    Schedule schedule;
    char invariant[16], text[400];
} Broken;

typedef struct Board { /* memory that the workers share */
    atomic_size_t next;
    atomic_size_t n_broken, n_done;
    atomic_ullong n_events, n_faults, n_worlds, n_commits, n_incidents, n_terms;
    size_t busy_with[WORKERS_MAX]; /* 1 + the number of each worker's schedule; 0: no schedule */
    Broken broken[BROKEN_MAX];
} Board;

typedef struct SimArguments {
    uint64_t first, last;
    int n_nodes;
    bool one, verbose, stop_at_first;
    const char *file, *broken_file;
} SimArguments;

static Schedule *schedules;
static size_t n_schedules;
static Board *board;
static bool verbose; /* prints a line for each schedule */

static void add_schedule(uint64_t seed, int n_nodes)
{
    assert(n_schedules < SCHEDULES_MAX);
    if ((n_schedules & (n_schedules - 1)) == 0)
        schedules = memory_resize(schedules, MAX(2 * n_schedules, (size_t)2), sizeof(*schedules));
    schedules[n_schedules++] = (Schedule){seed, n_nodes};
}

/* ---- one schedule ---- */

static void note_broken(const Schedule *s, const char *invariant, const char *text)
{
    size_t at = atomic_fetch_add(&board->n_broken, 1);
    /* The breach is printed at once, because a run may be long, and again at the run's end. */
    fprintf(stderr, "sim: seed %llu is broken: %s: %s\n", (unsigned long long)s->seed, invariant,
            text);
    if (at >= BROKEN_MAX)
        return;
    board->broken[at].schedule = *s;
    (void)snprintf(board->broken[at].invariant, sizeof(board->broken[at].invariant), "%s",
                   invariant);
    (void)snprintf(board->broken[at].text, sizeof(board->broken[at].text), "%s", text);
}

static void print_result(const Schedule *s, const ScheduleResult *r)
{
    printf("seed %llu of %d nodes: %s%s%s, %llu events, digest %016llx\n",
           (unsigned long long)s->seed, s->n_nodes, r->failed ? r->invariant : "well",
           r->failed ? ": " : "", r->failed ? r->text : "", (unsigned long long)r->n_events,
           (unsigned long long)r->digest);
}

static void run_twice(const Schedule *s)
{
    ScheduleResult first, second;
    schedule_run(s->seed, s->n_nodes, false, &first);
    if (verbose)
        print_result(s, &first);
    if (first.failed)
        note_broken(s, first.invariant, first.text);
    atomic_fetch_add(&board->n_events, first.n_events);
    atomic_fetch_add(&board->n_faults, first.n_faults);
    atomic_fetch_add(&board->n_worlds, first.n_worlds);
    atomic_fetch_add(&board->n_commits, first.n_commits);
    atomic_fetch_add(&board->n_incidents, first.n_incidents);
    atomic_fetch_add(&board->n_terms, first.n_terms);
    if (!first.failed) {
        schedule_run(s->seed, s->n_nodes, false, &second);
        if (second.digest != first.digest || second.n_events != first.n_events)
            note_broken(s, "digest", "the second run has another history than the first");
    }
    atomic_fetch_add(&board->n_done, 1);
}

/* ---- many ---- */

static _noreturn_ void work(int worker, bool stop_at_first)
{
    for (;;) {
        size_t i = atomic_fetch_add(&board->next, 1);
        if (i >= n_schedules || (stop_at_first && atomic_load(&board->n_broken) > 0))
            break;
        board->busy_with[worker] = i + 1;
        run_twice(&schedules[i]);
        board->busy_with[worker] = 0;
    }
    _exit(0);
}

/* Runs the workers. A failed assertion ends a worker: then its schedule is broken, and a new worker
 * is started. */
static void wait_for_workers(int n, bool stop_at_first)
{
    pid_t pids[WORKERS_MAX];
    int n_running = 0;
    for (int i = 0; i < n; i++, n_running++)
        if ((pids[i] = fork()) == 0)
            work(i, stop_at_first);
    while (n_running > 0) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0 && errno == EINTR)
            continue;
        assert(pid > 0); /* there is at least one child */
        n_running--;
        for (int i = 0; i < n; i++) {
            if (pids[i] != pid || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
                continue;
            size_t at = board->busy_with[i];
            board->busy_with[i] = 0;
            if (at)
                note_broken(&schedules[at - 1], "assert", "the process died, see above");
            if (at && !stop_at_first && board->n_broken < BROKEN_MAX) {
                n_running++;
                if ((pids[i] = fork()) == 0)
                    work(i, stop_at_first);
            }
        }
    }
}

static int core_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static double now_sec(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Appends a broken schedule as a line of tests/sim/seeds. */
static void keep(const char *path, const Broken *b)
{
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (!file) {
        if (path)
            fprintf(stderr, "sim: %s: %s\n", path, strerror(errno));
        return;
    }
    (void)fprintf(file, "%llu %d  %s: %s\n", (unsigned long long)b->schedule.seed,
                  b->schedule.n_nodes, b->invariant, b->text); /* fclose() reports errors */
    if (fclose(file) != 0)
        fprintf(stderr, "sim: %s: %s\n", path, strerror(errno));
    else
        printf("    to keep it: grep '^%llu ' %s >>tests/sim/seeds\n",
               (unsigned long long)b->schedule.seed, path);
}

static int run_all(bool stop_at_first, const char *broken_file)
{
    double began = now_sec();
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        fprintf(stderr, "sim: no memory to share\n");
        return 2;
    }
    (void)fflush(stdout); /* else every worker would print the buffered output again */
    wait_for_workers(MIN(core_count(), (int)WORKERS_MAX), stop_at_first);
    double took = now_sec() - began;
    for (size_t i = 0; i < MIN(board->n_broken, (size_t)BROKEN_MAX); i++) {
        const Broken *b = &board->broken[i];
        printf("BROKEN %s by seed %llu of %d nodes: %s\n    sim --nodes %d --seed %llu --verbose\n",
               b->invariant, (unsigned long long)b->schedule.seed, b->schedule.n_nodes, b->text,
               b->schedule.n_nodes, (unsigned long long)b->schedule.seed);
        keep(broken_file, b);
    }
    printf("sim: %zu schedules, twice each, %zu broken, in %.1f s (%.0f a second); %llu events, "
           "%llu faults, %llu worlds, %llu commits, %llu incidents, %llu changes of leader\n",
           board->n_done, board->n_broken, took, (double)board->n_done / took, board->n_events,
           board->n_faults, board->n_worlds, board->n_commits, board->n_incidents, board->n_terms);
    return board->n_broken > 0;
}

static int run_one(uint64_t seed, int n_nodes, bool talks)
{
    ScheduleResult r;
    schedule_run(seed, n_nodes, talks, &r);
    print_result(&(Schedule){seed, n_nodes}, &r);
    return r.failed;
}

/* ---- arguments ---- */

static int read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[512];
    if (!file) {
        fprintf(stderr, "sim: %s: %s\n", path, strerror(errno));
        return -1;
    }
    for (int number = 1; fgets(line, sizeof(line), file); number++) {
        unsigned long long seed;
        int n_nodes;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%llu %d", &seed, &n_nodes) != 2 || n_nodes < 1) {
            fprintf(stderr, "sim: %s:%d: not a seed and a number of nodes\n", path, number);
            (void)fclose(file); /* the file was only read */
            return -1;
        }
        add_schedule(seed, n_nodes);
    }
    (void)fclose(file); /* the file was only read */
    return 0;
}

static int parse_range(const char *text, SimArguments *ret)
{
    unsigned long long first, last;
    char more;
    if (sscanf(text, "%llu..%llu%c", &first, &last, &more) != 2 || last < first ||
        last - first >= SCHEDULES_MAX)
        return -1;
    ret->first = first;
    ret->last = last;
    return 0;
}

/* Draws seeds from the clock, one for each tenth of a millisecond. Two runs share no seed, since no
 * machine runs ten thousand schedules per second. */
static int draw_range(const char *text, SimArguments *ret)
{
    const char *again = getenv("SDTRAIN_SIM_SEEDS");
    struct timespec t;
    char *end;
    unsigned long long count = strtoull(text, &end, 10);
    if (!*text || *end || count < 1 || count > SCHEDULES_MAX)
        return -1;
    (void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail */
    ret->first = (uint64_t)t.tv_sec * 10000 + (uint64_t)t.tv_nsec / 100000;
    ret->last = ret->first + count - 1;
    if (again && parse_range(again, ret) < 0)
        return -1;
    printf("sim: again with SDTRAIN_SIM_SEEDS=%llu..%llu\n", (unsigned long long)ret->first,
           (unsigned long long)ret->last);
    return 0;
}

static int parse(int argc, char *argv[], SimArguments *ret)
{
    *ret = (SimArguments){.n_nodes = NODES_DEFAULT};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end = NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            ret->verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--first") == 0) {
            ret->stop_at_first = true;
            continue;
        }
        if (strcmp(argv[i], "--nodes") == 0) {
            ret->n_nodes = (int)strtol(value, &end, 10);
            if (*end || ret->n_nodes < 1)
                return -1;
        } else if (strcmp(argv[i], "--seed") == 0) {
            ret->first = ret->last = strtoull(value, &end, 10);
            ret->one = true;
            if (!*value || *end)
                return -1;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            if (parse_range(value, ret) < 0)
                return -1;
        } else if (strcmp(argv[i], "--fresh") == 0) {
            if (draw_range(value, ret) < 0)
                return -1;
        } else if (strcmp(argv[i], "--broken") == 0 && *value) {
            ret->broken_file = value;
        } else if (strcmp(argv[i], "--file") == 0 && *value) {
            ret->file = value;
        } else {
            return -1;
        }
        i++;
    }
    return ret->file || ret->last > 0 ? 0 : -1;
}

int main(int argc, char *argv[])
{
    SimArguments a;
    /* so that the last lines are not lost when an assertion fails */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (parse(argc, argv, &a) < 0) {
        fprintf(stderr,
                "usage: sim [--nodes N] [--broken FILE] --seed S [--verbose] | --seeds A..B "
                "[--first] | --fresh COUNT | --file FILE\n");
        return 2;
    }
    if (a.one)
        return run_one(a.first, a.n_nodes, a.verbose);
    if (a.file && read_file(a.file) < 0)
        return 2;
    verbose = a.verbose;
    for (uint64_t seed = a.first; a.last > 0 && seed <= a.last; seed++)
        add_schedule(seed, a.n_nodes);
    int r = run_all(a.stop_at_first, a.broken_file);
    free(schedules);
    return r;
}
