/* SPDX-License-Identifier: Apache-2.0 */
/* report-page.c - see report.h: the page around the drawings. One file, no script, nothing loaded
 * from elsewhere. */
#include "ctl/job/report.h"

#include "ctl/print.h"

#include <math.h>
#include <string.h>

const char *const recovery_phase_name[RECOVERY_PHASES] = {"detect",  "decide",     "stop",  "start",
                                                          "restore", "first step", "replay"};

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fcfcfb;--card:#fff;--ink:#0b0b0b;--soft:#52514e;"
    "--faint:#898781;--grid:#e8e7e3;--rule:#c3c2b7;--line:#2a78d6;--bad:#d03b3b;--again:#d03b3b22;"
    "--move:#4a3aa7;--ok:#00701a;--p0:#e87ba4;--p1:#4a3aa7;--p2:#eb6834;--p3:#2a78d6;--p4:#1baf7a;"
    "--p5:#7d8fa8;--p6:#eda100}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#111110;--card:#1a1a19;--ink:#fff;--soft:#c3c2b7;"
    "--faint:#898781;--grid:#2c2c2a;--rule:#4a4946;--line:#3987e5;--bad:#e66767;--again:#e6676730;"
    "--move:#9085e9;--ok:#35b25a;--p0:#d55181;--p1:#9085e9;--p2:#d95926;--p3:#3987e5;--p4:#199e70;"
    "--p5:#7f8ea3;--p6:#c98500}}\n"
    "body{background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,\"Segoe UI\","
    "sans-serif;margin:0 auto;max-width:1080px;padding:28px 20px 60px}\n"
    "h1{font-size:26px;margin:0}h2{font-size:17px;margin:0 0 2px}\n"
    ".sub{color:var(--soft);margin:2px 0 20px}\n"
    ".state{font-weight:600}.good{color:var(--ok)}.bad{color:var(--bad)}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:16px}\n"
    ".tile,section{background:var(--card);border:1px solid var(--grid);border-radius:10px}\n"
    ".tile{padding:9px 14px;flex:1 1 auto;white-space:nowrap}.tile b{display:block;font-size:21px;"
    "font-weight:600;line-height:1.35}.tile span{color:var(--soft);font-size:13px}\n"
    "section{padding:16px 18px;margin-bottom:16px;overflow-x:auto}\n"
    ".legend{color:var(--soft);font-size:13px;margin:0 0 8px}.legend i{display:inline-block;"
    "width:11px;height:11px;border-radius:3px;margin:0 5px 0 14px;vertical-align:-1px}"
    ".legend i:first-child{margin-left:0}\n"
    "svg{display:block;width:100%;height:auto;font:13px system-ui,-apple-system,\"Segoe UI\","
    "sans-serif}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--rule)}.tick{fill:var(--faint)}"
    ".label{fill:var(--soft);white-space:pre}\n"
    ".raw{fill:none;stroke:var(--line);stroke-opacity:.32;stroke-width:1}"
    ".line{fill:none;stroke:var(--line);stroke-width:2;stroke-linejoin:round}"
    ".area{fill:var(--line);fill-opacity:.12}.hover{fill:transparent}\n"
    ".saved{fill:var(--faint)}.again{fill:var(--again)}.gap{fill:var(--bad);fill-opacity:.75}\n"
    ".failure line,.failure path{stroke:var(--bad);stroke-width:1.5;fill:none}"
    ".resize line{stroke:var(--move);stroke-width:1.5;stroke-dasharray:5 4}\n"
    ".p0{fill:var(--p0)}.p1{fill:var(--p1)}.p2{fill:var(--p2)}.p3{fill:var(--p3)}"
    ".p4{fill:var(--p4)}.p5{fill:var(--p5)}.p6{fill:var(--p6)}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}"
    "th{color:var(--soft);font-weight:500;text-align:left;font-size:13px}"
    "th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--grid);vertical-align:top}"
    "tr:last-child td{border-bottom:0}.n{text-align:right;font-variant-numeric:tabular-nums}"
    "td.n,.t{white-space:nowrap}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}\n"
    ".facts td:first-child{color:var(--soft);width:190px}\n"
    "footer{color:var(--faint);font-size:13px}\n";

void report_put_text(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++)
        switch (*p) {
        case '&':
            (void)fputs("&amp;", to);
            break;
        case '<':
            (void)fputs("&lt;", to);
            break;
        case '>':
            (void)fputs("&gt;", to);
            break;
        case '"':
            (void)fputs("&quot;", to);
            break;
        default:
            (void)fputc((unsigned char)*p < ' ' ? ' ' : *p, to);
        }
}

const IncidentRecord *report_next_incident(const JobReport *r, size_t *i)
{
    while (*i < r->model->n_incidents) {
        const IncidentRecord *n = &r->model->incidents[(*i)++];
        if (model_is_incident_of(n, r->job))
            return n;
    }
    return NULL;
}

uint64_t report_end_usec(const JobReport *r)
{
    return model_has_ended(r->job) ? r->job->phase.since_usec : r->now_usec;
}

void recovery_phases(const IncidentRecord *n, double ret[RECOVERY_PHASES])
{
    const double known[] = {n->detect_sec, n->decide_sec, n->stop_sec, n->start_sec,
                            n->restore_sec};
    double left = n->first_step_usec ? model_recovery_sec(n) : -1;
    for (size_t i = 0; i < ELEMENTSOF(known); i++)
        left -= MAX(known[i], 0);
    memcpy(ret, known, sizeof(known));
    ret[ELEMENTSOF(known)] = left;
    ret[ELEMENTSOF(known) + 1] = n->replay_sec;
}

void report_clear(JobReport *r)
{
    free(r->metrics.lines);
    free(r->metrics.saved);
    *r = (JobReport){0};
}

/* ---- tiles ---- */

static void put_tile(FILE *to, const char *about, const char *format, ...) _printf_(3, 4);
static void put_tile(FILE *to, const char *about, const char *format, ...)
{
    va_list ap;
    fprintf(to, "<div class=\"tile\"><b>");
    va_start(ap, format);
    (void)vfprintf(to, format, ap);
    va_end(ap);
    fprintf(to, "</b><span>%s</span></div>\n", about);
}

static void put_tiles(FILE *to, const JobReport *r)
{
    const PhaseRecord *p = &r->job->phase;
    const IncidentRecord *n;
    char span[SPAN_TEXT_BYTES];
    size_t n_incidents = 0;
    double lost_sec = 0;
    long long again = 0;
    for (size_t i = 0; (n = report_next_incident(r, &i)); n_incidents++) {
        double sec = model_ended_world(n) ? model_recovery_sec(n) : 0;
        lost_sec += isfinite(sec) ? sec : 0;
        again += n->lost_steps;
    }
    fprintf(to, "<div class=\"tiles\">\n");
    put_tile(to, "steps", "%lld / %lld", (long long)model_step(r->job),
             (long long)r->spec->train.steps);
    if (r->metrics.n_lines > 0)
        put_tile(to, "last loss", "%.4f", r->metrics.lines[r->metrics.n_lines - 1].loss);
    if (isfinite(model_goodput(r->job)))
        put_tile(to, "goodput", "%.1f %%", 100 * model_goodput(r->job));
    if (p->started_usec)
        put_tile(to, "since the start", "%s",
                 span_text((double)(report_end_usec(r) - p->started_usec) * 1e-6, span));
    put_tile(to, "incidents", "%zu", n_incidents);
    put_tile(to, "lost to recovery", "%s", span_text(lost_sec, span));
    put_tile(to, "steps trained again", "%lld", again);
    fprintf(to, "</div>\n");
}

/* ---- sections ---- */

static void put_loss(FILE *to, const JobReport *r)
{
    fprintf(to, "<section><h2>Loss</h2>\n");
    if (r->metrics.n_lines == 0) {
        fprintf(to, "<p class=\"legend\">");
        report_put_text(to, r->metrics_note);
        fprintf(to, "</p></section>\n");
        return;
    }
    if (r->metrics.n_lost > 0) {
        fprintf(to,
                "<p class=\"legend\">The metrics of %lld step%s between %lld and %lld are lost: ",
                (long long)r->metrics.n_lost, r->metrics.n_lost == 1 ? "" : "s",
                (long long)r->metrics.first_lost, (long long)r->metrics.last_lost);
        report_put_text(to,
                        *r->metrics.why ? r->metrics.why : "they were when segments were merged");
        fprintf(to, "</p>\n");
    }
    fprintf(to, "<p class=\"legend\"><i style=\"background:var(--line)\"></i>averaged"
                "<i style=\"background:var(--line);opacity:.32\"></i>each step"
                "<i style=\"background:var(--bad)\"></i>failure"
                "<i style=\"background:var(--again)\"></i>trained again"
                "<i style=\"background:var(--move)\"></i>resize"
                "<i style=\"background:var(--faint)\"></i>checkpoint</p>\n");
    report_draw_loss(to, r);
    fprintf(to, "</section>\n");
}

static void put_worlds(FILE *to, const JobReport *r)
{
    const PhaseRecord *p = &r->job->phase;
    char when[TIME_TEXT_BYTES];
    if (p->n_worlds == 0)
        return;
    fprintf(to, "<section><h2>World size</h2>\n<p class=\"legend\">"
                "<i style=\"background:var(--line)\"></i>ranks"
                "<i style=\"background:var(--bad)\"></i>from a failure to the next step</p>\n");
    report_draw_worlds(to, r);
    fprintf(to, "<table><tr><th class=\"n\">Generation<th>Time<th class=\"n\">Ranks"
                "<th class=\"n\">From step<th>Why</tr>\n");
    for (size_t i = 0; i < p->n_worlds; i++) {
        const PastWorld *w = &p->worlds[i];
        fprintf(to,
                "<tr><td class=\"n\">%lld<td class=\"t\">%s<td class=\"n\">%d<td class=\"n\">%lld"
                "<td>",
                (long long)w->generation, date_text(w->decided_usec, when), w->size,
                (long long)w->step);
        report_put_text(to, w->reason);
        fprintf(to, "</tr>\n");
    }
    fprintf(to, "</table></section>\n");
}

static void put_incident(FILE *to, const IncidentRecord *n)
{
    char when[TIME_TEXT_BYTES];
    fprintf(to, "<tr><td class=\"t\">%s<td class=\"t\">", date_text(n->at_usec, when));
    report_put_text(to, n->cause);
    fprintf(to, "<td class=\"t\">");
    report_put_text(to, *n->node ? n->node : "-");
    if (n->rank >= 0)
        fprintf(to, "<td class=\"n\">%d", n->rank);
    else
        fprintf(to, "<td class=\"n\">-");
    fprintf(to, "<td>");
    report_put_text(to, n->evidence);
    fprintf(to, "<td class=\"n\">%lld", (long long)n->step);
    if (n->state == INCIDENT_OPEN)
        fprintf(to, "<td class=\"n bad\">open");
    else
        fprintf(to, "<td class=\"n\">%.2f s", model_recovery_sec(n));
    fprintf(to, "<td class=\"n\">%lld</tr>\n", (long long)n->lost_steps);
}

static void put_incidents(FILE *to, const JobReport *r)
{
    size_t i = 0;
    const IncidentRecord *n = report_next_incident(r, &i);
    fprintf(to, "<section><h2>Recoveries</h2>\n");
    if (!n) {
        fprintf(to, "<p class=\"legend\">Nothing failed.</p></section>\n");
        return;
    }
    fprintf(to, "<p class=\"legend\">");
    for (int k = 0; k < RECOVERY_PHASES; k++)
        fprintf(to, "<i style=\"background:var(--p%d)\"></i>%s", k, recovery_phase_name[k]);
    fprintf(to, "</p>\n");
    report_draw_recoveries(to, r);
    fprintf(to, "<table><tr><th>Time<th>Cause<th>Node<th class=\"n\">Rank<th>Evidence"
                "<th class=\"n\">Step<th class=\"n\">To next step<th class=\"n\">Steps "
                "again</tr>\n");
    for (; n; n = report_next_incident(r, &i))
        put_incident(to, n);
    fprintf(to, "</table></section>\n");
}

static void put_fact(FILE *to, const char *name, const char *format, ...) _printf_(3, 4);
static void put_fact(FILE *to, const char *name, const char *format, ...)
{
    char text[1400];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(to, "<tr><td>%s<td>", name);
    report_put_text(to, text);
    fprintf(to, "</tr>\n");
}

static void put_facts(FILE *to, const JobReport *r)
{
    static const char *const precision[] = {"fp32", "bf16", "fp16"};
    static const char *const reduction[] = {"exact", "exact64", "float"};
    const Job *s = r->spec;
    const CheckpointCommit *c = checkpoints_latest(&r->job->checkpoints);
    char text[HASH_TEXT_BYTES], when[TIME_TEXT_BYTES];
    fprintf(to, "<section><h2>Job</h2><table class=\"facts\">\n");
    put_fact(to, "batch", "%lld samples a step, %lld grains of %lld",
             (long long)s->train.global_batch, (long long)s->train.n_grains,
             (long long)s->train.grain);
    put_fact(to, "steps", "%lld", (long long)s->train.steps);
    put_fact(to, "precision, reduction", "%s, %s%s", precision[s->train.precision],
             reduction[s->train.reduction],
             s->train.reduction == REDUCTION_FLOAT ? ": bits may differ between worlds" : "");
    put_fact(to, "optimizer", "AdamW, lr %g, %lld steps of warm-up, clipped at %g",
             s->train.optimizer.lr, (long long)s->train.optimizer.warmup_steps,
             s->train.optimizer.clip_norm);
    put_fact(to, "seed", "%llu", (unsigned long long)s->train.seed);
    put_fact(to, "model", "%s", s->model.config_uri);
    for (size_t i = 0; i < s->data.n_streams; i++)
        put_fact(to, "data", "%s (proportion %g)", s->data.streams[i].uri,
                 s->data.streams[i].proportion);
    put_fact(to, "submitted", "%s", date_text(r->job->spec.submitted_usec, when));
    put_fact(to, "identity of the job", "%s", hash_format(s->identity, text));
    if (c) {
        put_fact(to, "last checkpoint", "step %lld of generation %lld", (long long)c->step,
                 (long long)c->generation);
        put_fact(to, "digest of its state", "%s", hash_format(c->digest, text));
        put_fact(to, "its manifest", "%s", c->uri);
    }
    fprintf(to, "</table></section>\n");
}

void report_write_page(FILE *to, const JobReport *r)
{
    const JobPhase phase = model_phase(r->job);
    char when[TIME_TEXT_BYTES];
    fprintf(to, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<title>");
    report_put_text(to, r->job->name);
    fprintf(to, " - training report</title>\n<style>%s</style></head><body>\n<h1>", style);
    report_put_text(to, r->job->name);
    fprintf(to, "</h1>\n<p class=\"sub\"><span class=\"state%s\">%s</span> ",
            phase == PHASE_SUCCEEDED ? " good"
            : phase == PHASE_FAILED  ? " bad"
                                     : "",
            job_phase_name(phase));
    if (r->job->has_phase && *r->job->phase.reason) {
        fprintf(to, "(");
        report_put_text(to, r->job->phase.reason);
        fprintf(to, ") ");
    }
    fprintf(to, "on cluster ");
    report_put_text(to, r->model->cluster);
    fprintf(to, "</p>\n");
    put_tiles(to, r);
    put_loss(to, r);
    put_worlds(to, r);
    put_incidents(to, r);
    put_facts(to, r);
    fprintf(to, "<footer>sdtrain %s, written %s</footer>\n</body></html>\n", SDTRAIN_VERSION,
            date_text(r->now_usec, when));
}
