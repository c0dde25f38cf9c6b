/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c - `sdctl simulate`: feeds the events that a controller recorded into the core of this sdctl, and prints
 * the recorded and the new decisions side by side. */
#include "base/json/json-build.h"
#include "controller/journal/replay.h"
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/decision-text.h"
#include "ctl/print.h"

#include <string.h>
#include <time.h>

typedef struct SimulateOptions {
    uint64_t from_usec, until_usec; /* realtime; 0: not given */
    bool verbose;
} SimulateOptions;

#define OPTIONS_STRUCT SimulateOptions
static const CtlOption options[] = {
    {"from", 0, "TIME", "say nothing of what was earlier", TAKES(TIME, from_usec)},
    {"until", 0, "TIME", "stop there; 2026-01-31T12:00:00 or seconds since 1970",
     TAKES(TIME, until_usec)},
    {"verbose", 'v', NULL, "each event as well", TAKES(NOTHING, verbose)},
};
const CtlOptions simulate_options = CTL_OPTIONS(options, .verbose = false);

typedef struct Simulation {
    const Arguments *arguments;
    const SimulateOptions *options;
    uint64_t from_usec, until_usec;
    long long n_events, n_decisions, n_differences, n_ignored, n_cut, lost_events, lost_decisions;
    size_t first_difference; /* line number in the journal; 0: no difference */
    bool cut;                /* the journal's last line was incomplete */
    char version[32];
    json_t *transitions; /* used only with -o json; else NULL */
} Simulation;

enum { STOPPED = 1 };

static void print_words(const char *mark, uint64_t usec, json_t *words)
{
    char date[TIME_TEXT_BYTES], text[SENTENCE_BYTES];
    json_t *line;
    size_t i;
    json_array_foreach (words, i, line)
        printf("%s %-19s %s\n", mark, i == 0 ? date_text(usec, date) : "",
               decision_text(json_string_value(line), text));
    if (json_array_size(words) == 0)
        printf("%s %-19s nothing\n", mark, date_text(usec, date));
}

static json_t *transition_json(const ReplayReport *r)
{
    return json_pack("{s:f, s:I, s:s, s:b, s:O?, s:O?}", "at", (double)r->real_usec * 1e-6, "line",
                     (json_int_t)r->line, "job", r->job, "differs", r->differs, "then", r->then,
                     "now", r->now);
}

static void take_decision(Simulation *s, const ReplayReport *r)
{
    s->n_decisions++;
    s->n_differences += r->differs;
    if (r->differs && !s->first_difference)
        s->first_difference = r->line;
    if (r->real_usec < s->from_usec)
        return;
    if (s->transitions) {
        json_array_append_new(s->transitions, transition_json(r));
    } else if (!r->differs) {
        print_words(" ", r->real_usec, r->now ? r->now : r->then);
    } else {
        print_words("-", r->real_usec, r->then);
        print_words("+", r->real_usec, r->now);
    }
}

static void take_head(Simulation *s, const ReplayReport *r)
{
    const JournalHead *head = r->head;
    /* This head follows the cut line, so the cut line is not the journal's last line. */
    s->cut = false;
    s->lost_events += head->lost_events;
    s->lost_decisions += head->lost_decisions;
    (void)snprintf(s->version, sizeof(s->version), "%s", head->version);
    if (s->transitions)
        return;
    printf("# line %zu: a controller of cluster %s, version %s, %lld record%s to begin with%s\n",
           r->line, head->cluster, head->version, (long long)head->n_snapshot,
           head->n_snapshot == 1 ? "" : "s",
           head->quiescent ? "" : "; something was under way, so the first decisions may differ");
    if (head->lost_events > 0 || head->lost_decisions > 0)
        printf("# before it %lld event%s and %lld decision%s could not be written\n",
               (long long)head->lost_events, head->lost_events == 1 ? "" : "s",
               (long long)head->lost_decisions, head->lost_decisions == 1 ? "" : "s");
}

static int on_report(const ReplayReport *r, void *userdata)
{
    Simulation *s = userdata;
    const bool talk = !s->transitions && r->real_usec >= s->from_usec;
    char date[TIME_TEXT_BYTES];
    switch (r->kind) {
    case REPLAY_HEAD:
        take_head(s, r);
        break;
    case REPLAY_EVENT:
        if (r->real_usec > s->until_usec)
            return STOPPED;
        s->n_events++;
        s->n_ignored += r->ignored;
        if (talk && (s->options->verbose || r->ignored))
            printf("  %s   %s%s%s\n", date_text(r->real_usec, date), r->event,
                   r->ignored ? ", which this version cannot read: " : "",
                   r->ignored ? r->text : "");
        break;
    case REPLAY_DECISION:
        take_decision(s, r);
        break;
    case REPLAY_CUT:
        s->cut = true;
        s->n_cut++;
        break;
    }
    return 0;
}

static void print_end(const Simulation *s)
{
    printf("%lld event%s, %lld decision%s", s->n_events, s->n_events == 1 ? "" : "s",
           s->n_decisions, s->n_decisions == 1 ? "" : "s");
    if (s->n_differences == 0)
        printf(", each as it was decided then\n");
    else
        printf(": %lld differ%s, the first at line %zu (- then, version %s; + now, version %s)\n",
               s->n_differences, s->n_differences == 1 ? "s" : "", s->first_difference, s->version,
               SDTRAIN_VERSION);
    if (s->n_differences > 1)
        printf("What follows the first goes on from what was done then.\n");
    if (s->n_ignored > 0)
        printf("%lld record%s left out: this version cannot read them.\n", s->n_ignored,
               s->n_ignored == 1 ? " was" : "s were");
    if (s->lost_events > 0 || s->lost_decisions > 0)
        printf("%lld event%s and %lld decision%s are missing: their lines could not be written.\n",
               s->lost_events, s->lost_events == 1 ? "" : "s", s->lost_decisions,
               s->lost_decisions == 1 ? "" : "s");
    if (s->n_cut > s->cut)
        printf("%lld line%s cut when a controller died, and another went on.\n", s->n_cut - s->cut,
               s->n_cut - s->cut == 1 ? " was" : "s were");
    if (s->cut)
        printf("The last line was cut when its controller died.\n");
}

static void print_result(Simulation *s)
{
    if (!s->transitions) {
        print_end(s);
        return;
    }
    JsonBuild b = json_build();
    json_add_text(&b, "file", s->arguments->operand);
    json_add_text(&b, "version", s->version);
    json_add_text(&b, "present_version", SDTRAIN_VERSION);
    json_add_int(&b, "events", s->n_events);
    json_add_int(&b, "decisions", s->n_decisions);
    json_add_int(&b, "differences", s->n_differences);
    json_add_int(&b, "ignored", s->n_ignored);
    json_add_bool(&b, "cut", s->cut);
    json_add_int(&b, "cut_lines", s->n_cut);
    json_add_int(&b, "lost_events", s->lost_events);
    json_add_int(&b, "lost_decisions", s->lost_decisions);
    json_add(&b, "transitions", s->transitions);
    print_json(json_build_end(&b));
}

int simulate(const Arguments *a)
{
    const SimulateOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    Simulation s = {.arguments = a,
                    .options = o,
                    .from_usec = o->from_usec,
                    .until_usec = o->until_usec ? o->until_usec : UINT64_MAX,
                    .transitions = a->json ? json_array() : NULL};
    int r = journal_replay(a->operand, on_report, &s, &err);
    if (r < 0) {
        json_decref(s.transitions);
        return ctl_fail(&err, r);
    }
    print_result(&s);
    return s.n_differences > 0 ? CTL_FAILED : CTL_DONE;
}
