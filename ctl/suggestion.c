/* SPDX-License-Identifier: Apache-2.0 */
/* suggestion.c - see suggestion.h. */
#include "ctl/suggestion.h"

#include "base/text/nearest.h"

#include <string.h>

/* Words that other programs use, each with the verb of sdctl that has the same meaning. */
static const struct {
    const char *word, *verb;
} others[] = {
    {"submit", "start"},   {"run", "start"},        {"create", "start"},  {"apply", "start"},
    {"launch", "start"},   {"resume", "start"},     {"restart", "start"}, {"cancel", "stop"},
    {"kill", "stop"},      {"abort", "stop"},       {"pause", "stop"},    {"ls", "list"},
    {"ps", "list"},        {"rm", "delete"},        {"remove", "delete"}, {"describe", "status"},
    {"info", "status"},    {"get", "show"},         {"spec", "show"},     {"cat", "show"},
    {"scale", "resize"},   {"log", "logs"},         {"tail", "logs"},     {"save", "checkpoint"},
    {"history", "events"}, {"simulate", "what-if"}, {"create", "up"},     {"destroy", "down"},
};

static bool is_of(const CtlVerb *v, const char *noun)
{
    return noun ? v->noun && strcmp(v->noun, noun) == 0 : !v->noun;
}

/* Returns the first word of the command: a noun, or a verb without a noun. */
static const char *first_word(const CtlVerb *v) { return v->noun ? v->noun : v->name; }

static void list_words(const char *noun)
{
    const char *last = "", *comma = "";
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        const char *word = noun ? v->name : first_word(v);
        if ((noun && !is_of(v, noun)) || strcmp(word, last) == 0)
            continue;
        fprintf(stderr, "%s%s", comma, last = word);
        comma = ", ";
    }
    fprintf(stderr, "\n");
}

/* Suggests verbs of this noun. A verb that other programs call by the given word has priority over verbs with a similar
 * spelling. */
static void offer_verbs(Nearest *meant, const char *noun)
{
    for (size_t k = 0; k < ELEMENTSOF(others) && meant->n == 0; k++)
        for (int i = 0; i < ctl_n_verbs; i++)
            if (strcmp(others[k].word, meant->asked) == 0 && is_of(&ctl_verbs[i], noun) &&
                strcmp(others[k].verb, ctl_verbs[i].name) == 0)
                *meant = (Nearest){.asked = meant->asked, .words = {others[k].verb}, .n = 1};
    for (int i = 0; i < ctl_n_verbs && (meant->n == 0 || meant->distances[0] > 0); i++)
        if (is_of(&ctl_verbs[i], noun))
            nearest_offer(meant, ctl_verbs[i].name);
}

/* Prints the nouns of a verb that was given without a noun, such as "start". Returns false if no noun has this verb. */
static bool print_nouns(const char *word)
{
    int n = 0;
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (v->noun && strcmp(v->name, word) == 0)
            fprintf(stderr, "%s sdctl %s %s",
                    n++ ? "," : "sdctl: what it is about comes first:", v->noun, v->name);
    }
    fprintf(stderr, n ? "\n" : "");
    return n > 0;
}

int suggest_verb(const char *noun, const char *word)
{
    char hint[NEAREST_TEXT_BYTES];
    Nearest meant = nearest_to(word);
    if (noun)
        offer_verbs(&meant, noun);
    for (int i = 0; !noun && i < ctl_n_verbs; i++)
        nearest_offer(&meant, first_word(&ctl_verbs[i]));
    if (!noun && meant.n == 0 && print_nouns(word)) {
        fprintf(stderr, "usage: sdctl NOUN VERB [NAME] [OPTIONS]\n");
        return CTL_USAGE;
    }
    if (*word)
        fprintf(stderr, "sdctl: %s%s%s is not a verb%s\n", noun ? noun : "", noun ? " " : "", word,
                nearest_text(&meant, hint));
    if (noun)
        fprintf(stderr, "usage: sdctl %s VERB [NAME] [OPTIONS]; VERB is ", noun);
    else
        fprintf(stderr, "usage: sdctl NOUN VERB [NAME] [OPTIONS]; NOUN is ");
    list_words(noun);
    fprintf(stderr, "sdctl %s%s--help says what each is for\n", noun ? noun : "", noun ? " " : "");
    return CTL_USAGE;
}

/* ---- names ---- */

void suggest_nothing_there(const Model *m, const char *what)
{
    if (m->n_candidates || m->n_nodes || m->n_health || m->n_jobs)
        fprintf(stderr, "cluster %s has no %s\n", m->cluster, what);
    else
        fprintf(stderr,
                "sdctl: cluster %s: no controller, no node and no job is there; is --cluster "
                "(SDTRAIN_CLUSTER) right?\n",
                m->cluster);
}

int suggest_job(const Model *m, const char *name, Error *err)
{
    char hint[NEAREST_TEXT_BYTES];
    Nearest meant = nearest_to(name);
    bool any = false;
    for (size_t i = 0; i < m->n_jobs; i++)
        if (model_is_shown(&m->jobs[i])) {
            nearest_offer(&meant, m->jobs[i].name);
            any = true;
        }
    if (!any)
        return error_set(err, -ENOENT, "no job %s in cluster %s, which has no jobs", name,
                         m->cluster);
    return error_set(err, -ENOENT, "no job %s in cluster %s%s; sdctl job list shows all", name,
                     m->cluster, nearest_text(&meant, hint));
}

int suggest_node(const Model *m, const char *name, Error *err)
{
    char hint[NEAREST_TEXT_BYTES];
    Nearest meant = nearest_to(name);
    for (size_t i = 0; i < m->n_nodes; i++)
        nearest_offer(&meant, m->nodes[i].name);
    for (size_t i = 0; i < m->n_health; i++)
        nearest_offer(&meant, m->health[i].node);
    if (m->n_nodes == 0 && m->n_health == 0)
        return error_set(err, -ENOENT, "no node %s in cluster %s, which has no nodes", name,
                         m->cluster);
    return error_set(err, -ENOENT, "no node %s in cluster %s%s; sdctl node list shows all", name,
                     m->cluster, nearest_text(&meant, hint));
}

int suggest_node_of(CtlClient *client, const char *name, Error *err)
{
    _cleanup_(model_freep) Model *model = NULL;
    Error ignored = ERROR_INIT; /* the missing node is the error to report */
    if (model_read(client, &model, &ignored) < 0)
        return error_set(err, -ENOENT, "no node %s in cluster %s", name, client->cluster);
    return suggest_node(model, name, err);
}
