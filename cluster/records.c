/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - the field tables behind records.h. */
#include "cluster/records.h"

#include "base/slots.h"
#include "base/text/secret.h"
#include "cluster/eval-record.h"
#include "cluster/keys.h"
#include "cluster/log-records.h"
#include "cluster/record-fields.h"
#include "cluster/record-tables.h"
#include "protocol/job.h"
#include "protocol/train-stage.h"

#include <string.h>

_Static_assert(sizeof(NodeState) == sizeof(int), "FIELD_CHOICE writes an int");

static const char *const leader_state[] = {"untold", "up", "left"};
static const char *const node_state[] = {"up", "left"};
const char *const node_verdict_names[] = {"healthy", "suspect", "drain", "isolate"};
const char *const cordon_mode_names[] = {"none", "cordon", "drain", "quarantine"};
const char *const cordon_owner_names[] = {"operator", "machine", "job"};
static const char *const desired_state[] = {"running", "stopped", "deleted"};
static const char *const resume_find[] = {"no", "any", "must"};
const char *const eval_verdict_names[EVAL_VERDICTS] = {"done", "failed", "skipped"};
const char *const rank_state_names[] = {"starting", "ready", "running", "exited"};
static const char *const incident_state[] = {"open", "resolved"};
const char *const severity_names[] = {"info", "warning", "critical"};
const char *const delivery_state_names[] = {"sending", "triggered", "resolved", "failed"};
static const char *const job_phase[PHASE_COUNT] = {
    "pending",  "starting", "running",   "recovering", "resizing",
    "stopping", "stopped",  "succeeded", "failed",
};

const char *job_phase_name(JobPhase phase)
{
    assert(phase < PHASE_COUNT);
    return job_phase[phase];
}

/* clang-format off */
static const Field leader_death_fields[] = {
    TEXT(LeaderDeath, "name", name, MAYBE),
    TEXT(LeaderDeath, "journal", journal, MAYBE),
    INT64(LeaderDeath, "at_usec", at_usec, MAYBE),
};

static const Field leader_fields[] = {
    TEXT(LeaderRecord, "name", name, NEEDED),
    TEXT(LeaderRecord, "version", version, MAYBE),
    INT(LeaderRecord, "max_nodes", max_nodes, MAYBE, 0, INT32_MAX),
    INT(LeaderRecord, "max_jobs", max_jobs, MAYBE, 0, INT32_MAX),
    TEXT(LeaderRecord, "admit", admit, MAYBE),
    TEXT(LeaderRecord, "lacks", lacks, MAYBE),
    CHOICE(LeaderRecord, "state", state, MAYBE, leader_state),
    TEXT(LeaderRecord, "journal", journal, MAYBE),
    TEXT(LeaderRecord, "page", page, MAYBE),
    INT(LeaderRecord, "deaths", deaths, MAYBE, 0, INT32_MAX),
    INT64(LeaderRecord, "records", records, MAYBE),
    INT64(LeaderRecord, "still_until_usec", still_until_usec, MAYBE),
    INT(LeaderRecord, "lease_sec", lease_sec, MAYBE, 0, INT32_MAX),
    TEXT(LeaderRecord, "settings", settings, MAYBE),
    ELEMENTS(LeaderRecord, FIELD_ARRAY, "before", before, n_before, MAYBE, LeaderDeath, leader_death_fields,
             LEADER_DEATHS_MAX, NULL),
};

static const Field job_run_fields[] = {
    TEXT(JobRun, "job", job, NEEDED),
    TEXT(JobRun, "submission", submission, MAYBE),
    COUNT(JobRun, "generation", generation, NEEDED),
    COUNT(JobRun, "committed_step", committed.step, MAYBE),
    COUNT(JobRun, "committed_generation", committed.generation, MAYBE),
    BOOL(JobRun, "told", told),
};

static const Field history_fields[] = {
    TEXT(HistoryRecord, "cluster", cluster, MAYBE),
    INT64(HistoryRecord, "revision", revision, MAYBE),
    INT64(HistoryRecord, "lease", lease, MAYBE),
    ELEMENTS(HistoryRecord, FIELD_ARRAY, "runs", runs, n_runs, MAYBE, JobRun, job_run_fields, RECORD_RUNS_MAX, "job"),
};

static const Field node_fields[] = {
    TEXT(NodeRecord, "name", name, NEEDED),
    TEXT(NodeRecord, "machine_id", machine_id, NEEDED),
    TEXT(NodeRecord, "boot_id", boot_id, MAYBE),
    INT64(NodeRecord, "incarnation", incarnation, NEEDED),
    TEXT(NodeRecord, "address", address, MAYBE),
    INT(NodeRecord, "slots", n_slots, NEEDED, 0, RECORD_SLOTS_MAX),
    TEXT(NodeRecord, "version", version, MAYBE),
    CHOICE(NodeRecord, "state", state, NEEDED, node_state),
    CHOICE(NodeRecord, "verdict", verdict, MAYBE, node_verdict_names),
    TEXT(NodeRecord, "evidence", evidence, MAYBE),
    TEXT(NodeRecord, "job", job, MAYBE),
    INT64(NodeRecord, "world_revision", world_revision, MAYBE),
    COUNT(NodeRecord, "generation", generation, MAYBE),
    SLOTS(NodeRecord, "lost_slots", lost_slots, MAYBE),
    INT64(NodeRecord, "startup_usec", startup_usec, MAYBE),
    SLOTS(NodeRecord, "bad_slots", bad_slots, MAYBE),
    TEXT(NodeRecord, "log_dir", log_dir, MAYBE),
    ELEMENTS(NodeRecord, FIELD_ARRAY, "runs", runs, n_runs, MAYBE, JobRun, job_run_fields, RECORD_RUNS_MAX, "job"),
    TEXT(NodeRecord, "features", features, MAYBE),
    INT64(NodeRecord, "memory_bytes", memory_bytes, MAYBE),
    INT(NodeRecord, "gpus", n_gpus, MAYBE, 0, RECORD_SLOTS_MAX),
    INT(NodeRecord, "lease_sec", lease_sec, MAYBE, 0, INT32_MAX),
    INT64(NodeRecord, "stranger_lease", stranger_lease, MAYBE),
    INT64(NodeRecord, "stranger_revision", stranger_revision, MAYBE),
    TEXT(NodeRecord, "price_class", price_class, MAYBE),
};

static const Field probe_fields[] = {
    TEXT(HealthProbeRecord, "name", name, NEEDED),
    CHOICE(HealthProbeRecord, "verdict", verdict, NEEDED, node_verdict_names),
    TEXT(HealthProbeRecord, "text", text, MAYBE),
    TEXT(HealthProbeRecord, "cure", cure, MAYBE),
    SLOTS(HealthProbeRecord, "bad_slots", bad_slots, MAYBE),
    INT64(HealthProbeRecord, "since_usec", since_usec, MAYBE),
    INT64(HealthProbeRecord, "at_usec", at_usec, MAYBE),
    INT64(HealthProbeRecord, "took_usec", took_usec, MAYBE),
    INT(HealthProbeRecord, "hangs", hangs, MAYBE, 0, INT32_MAX),
    INT(HealthProbeRecord, "failures", failures, MAYBE, 0, INT32_MAX),
};

static const Field health_fields[] = {
    TEXT(HealthRecord, "node", node, NEEDED),
    TEXT(HealthRecord, "machine_id", machine_id, MAYBE),
    CHOICE(HealthRecord, "verdict", verdict, NEEDED, node_verdict_names),
    TEXT(HealthRecord, "evidence", evidence, MAYBE),
    TEXT(HealthRecord, "cure", cure, MAYBE),
    SLOTS(HealthRecord, "bad_slots", bad_slots, MAYBE),
    INT64(HealthRecord, "since_usec", since_usec, MAYBE),
    INT64(HealthRecord, "at_usec", at_usec, MAYBE),
    INT64(HealthRecord, "left_usec", left_usec, MAYBE),
    ELEMENTS(HealthRecord, FIELD_ARRAY, "probes", probes, n_probes, NEEDED, HealthProbeRecord,
             probe_fields, RECORD_PROBES_MAX, "name"),
    TEXT(HealthRecord, "report", report, MAYBE),
    TEXT(HealthRecord, "report_id", report_id, MAYBE),
};

static const Field cause_fields[] = {
    CHOICE(CordonCause, "owner", owner, NEEDED, cordon_owner_names),
    TEXT(CordonCause, "job", job, MAYBE),
    TEXT(CordonCause, "submission", submission, MAYBE),
    TEXT(CordonCause, "machine_id", machine_id, MAYBE),
    CHOICE(CordonCause, "mode", mode, NEEDED, cordon_mode_names),
    TEXT(CordonCause, "reason", reason, MAYBE),
    INT64(CordonCause, "since_usec", since_usec, MAYBE),
    INT64(CordonCause, "until_usec", until_usec, MAYBE),
    INT(CordonCause, "strikes", strikes, MAYBE, 0, INT32_MAX),
    TEXT(CordonCause, "way", way, MAYBE),
    TEXT(CordonCause, "by", by, MAYBE),
};

static const Field cordon_fields[] = {
    TEXT(CordonRecord, "node", node, NEEDED),
    ELEMENTS(CordonRecord, FIELD_ARRAY, "causes", causes, n_causes, NEEDED, CordonCause,
             cause_fields, RECORD_CAUSES_MAX, "owner job machine_id"),
};

static const Field spec_fields[] = {
    STRING(SpecRecord, "spec", spec, NEEDED),
    TEXT(SpecRecord, "resume", resume_uri, MAYBE),
    INT64(SpecRecord, "submitted_usec", submitted_usec, MAYBE),
    TEXT(SpecRecord, "submission", submission, MAYBE),
    TEXT(SpecRecord, "sources", sources, MAYBE),
    TEXT(SpecRecord, "by", by, MAYBE),
    HASH(SpecRecord, "program", program),
};

static const Field program_fields[] = {
    STRING(ProgramRecord, "file", file, NEEDED),
    TEXT(ProgramRecord, "submission", submission, NEEDED),
    TEXT(ProgramRecord, "by", by, MAYBE),
};

static const Field desired_fields[] = {
    CHOICE(DesiredRecord, "state", state, NEEDED, desired_state),
    INT(DesiredRecord, "min", min, NEEDED, 1, RECORD_RANKS_MAX),
    INT(DesiredRecord, "max", max, NEEDED, 1, RECORD_RANKS_MAX),
    INT(DesiredRecord, "target", target, MAYBE, 0, RECORD_RANKS_MAX),
    INT(DesiredRecord, "priority", priority, MAYBE, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX),
    TEXT(DesiredRecord, "by", by, MAYBE),
    INT64(DesiredRecord, "asked_usec", asked_usec, MAYBE),
};

static const Field run_fields[] = {
    TEXT(WorldRun, "node", node, NEEDED),
    INT64(WorldRun, "incarnation", incarnation, NEEDED),
    SLOTS(WorldRun, "slots", slots, NEEDED),
};

static const Field resume_fields[] = {
    COUNT(ResumePoint, "step", step, NEEDED),
    TEXT(ResumePoint, "uri", uri, NEEDED),
    HASH(ResumePoint, "hash", hash),
    BOOL(ResumePoint, "adopt", adopt),
    CHOICE(ResumePoint, "find", find, MAYBE, resume_find),
    TEXT(ResumePoint, "takes_over", takes_over, MAYBE),
};

static const Field world_fields[] = {
    {.name = "generation",
     .type = FIELD_INT64,
     .need = NEEDED,
     AT(WorldRecord, generation),
     .min = 1,
     .max = COUNT_MAX},
    INT(WorldRecord, "size", size, NEEDED, 1, RECORD_RANKS_MAX),
    ELEMENTS(WorldRecord, FIELD_LIST, "runs", runs, n_runs, NEEDED, WorldRun, run_fields, RECORD_RANKS_MAX,
             NULL),
    OBJECT(WorldRecord, "resume", resume, NEEDED, resume_fields),
    TEXT(WorldRecord, "incident", incident, MAYBE),
    TEXT(WorldRecord, "reason", reason, MAYBE),
    INT64(WorldRecord, "decided_usec", decided_usec, MAYBE),
    COUNT(WorldRecord, "committed_step", committed.step, MAYBE),
    COUNT(WorldRecord, "committed_generation", committed.generation, MAYBE),
    TEXT(WorldRecord, "submission", submission, MAYBE),
    HASH(WorldRecord, "program", program),
};

static const Field secret_fields[] = {
    COUNT(SecretRecord, "generation", generation, NEEDED),
    TEXT(SecretRecord, "secret", secret, NEEDED),
};

static const Field past_world_fields[] = {
    COUNT(PastWorld, "generation", generation, NEEDED),
    INT(PastWorld, "size", size, NEEDED, 1, RECORD_RANKS_MAX),
    COUNT(PastWorld, "step", step, MAYBE),
    INT64(PastWorld, "decided_usec", decided_usec, MAYBE),
    TEXT(PastWorld, "reason", reason, MAYBE),
};

static const Field asked_fields[] = {
    COUNT(CheckpointCommit, "step", step, NEEDED),
    COUNT(CheckpointCommit, "generation", generation, NEEDED),
    TEXT(CheckpointCommit, "uri", uri, NEEDED),
    HASH(CheckpointCommit, "hash", hash),
};

static const Field eval_result_fields[] = {
    COUNT(EvalResult, "step", step, NEEDED),
    COUNT(EvalResult, "generation", generation, NEEDED),
    CHOICE(EvalResult, "verdict", verdict, NEEDED, eval_verdict_names),
    INT64(EvalResult, "at_usec", at_usec, MAYBE),
};

static const Field eval_number_fields[] = {
    TEXT(EvalNumber, "name", name, NEEDED),
    DOUBLE(EvalNumber, "value", value),
};

static const Field eval_artifact_fields[] = {
    TEXT(EvalArtifact, "name", name, NEEDED),
    TEXT(EvalArtifact, "uri", uri, NEEDED),
};

static const Field eval_fields[] = {
    COUNT(EvalRecord, "step", step, NEEDED),
    TEXT(EvalRecord, "uri", uri, NEEDED),
    HASH(EvalRecord, "hash", hash),
    ELEMENTS(EvalRecord, FIELD_ARRAY, "numbers", results.numbers, results.n_numbers, MAYBE,
             EvalNumber, eval_number_fields, EVAL_NUMBERS_MAX, "name"),
    ELEMENTS(EvalRecord, FIELD_ARRAY, "artifacts", results.artifacts, results.n_artifacts, MAYBE,
             EvalArtifact, eval_artifact_fields, EVAL_ARTIFACTS_MAX, "name"),
    TEXT(EvalRecord, "text", results.text, MAYBE),
    DOUBLE(EvalRecord, "seconds", results.seconds),
    TEXT(EvalRecord, "node", node, MAYBE),
    INT64(EvalRecord, "at_usec", at_usec, MAYBE),
    TEXT(EvalRecord, "submission", submission, MAYBE),
};

static const Field phase_fields[] = {
    CHOICE(PhaseRecord, "phase", phase, NEEDED, job_phase),
    COUNT(PhaseRecord, "generation", generation, NEEDED),
    BOOL(PhaseRecord, "go", go),
    BOOL(PhaseRecord, "leave", leave),
    TEXT(PhaseRecord, "reason", reason, MAYBE),
    INT64(PhaseRecord, "since_usec", since_usec, MAYBE),
    COUNT(PhaseRecord, "furthest_step", furthest_step, MAYBE),
    INT(PhaseRecord, "failures_without_progress", failures_without_progress, MAYBE, 0, INT32_MAX),
    DOUBLE(PhaseRecord, "goodput", goodput),
    DOUBLE(PhaseRecord, "useful_sec", useful_sec),
    DOUBLE(PhaseRecord, "saving", saving),
    DOUBLE(PhaseRecord, "saving_sec", saving_sec),
    COUNT(PhaseRecord, "spent_start_usec", spent.start_usec, MAYBE),
    COUNT(PhaseRecord, "spent_running_usec", spent.running_usec, MAYBE),
    COUNT(PhaseRecord, "spent_recovery_usec", spent.recovery_usec, MAYBE),
    COUNT(PhaseRecord, "spent_resize_usec", spent.resize_usec, MAYBE),
    COUNT(PhaseRecord, "spent_idle_usec", spent.idle_usec, MAYBE),
    INT64(PhaseRecord, "started_usec", started_usec, MAYBE),
    INT64(PhaseRecord, "grown_usec", grown_usec, MAYBE),
    INT(PhaseRecord, "growths_in_vain", growths_in_vain, MAYBE, 0, INT32_MAX),
    INT64(PhaseRecord, "tried_revision", tried_revision, MAYBE),
    INT64(PhaseRecord, "pause_usec", pause_usec, MAYBE),
    INT(PhaseRecord, "pauses", pauses, MAYBE, 0, INT32_MAX),
    INT64(PhaseRecord, "store_lost_usec", store_lost_usec, MAYBE),
    COUNT(PhaseRecord, "committed_step", committed.step, MAYBE),
    COUNT(PhaseRecord, "committed_generation", committed.generation, MAYBE),
    COUNT(PhaseRecord, "furthest_resume", furthest_resume, MAYBE),
    COUNT(PhaseRecord, "serial", serial, MAYBE),
    INT64(PhaseRecord, "cost_rate", cost.rate, MAYBE),
    INT64(PhaseRecord, "cost_since_usec", cost.since_usec, MAYBE),
    COUNT(PhaseRecord, "cost_spent", cost.spent, MAYBE),
    COUNT(PhaseRecord, "cost_lost", cost.lost, MAYBE),
    ELEMENTS(PhaseRecord, FIELD_ARRAY, "worlds", worlds, n_worlds, MAYBE, PastWorld,
             past_world_fields, RECORD_PAST_WORLDS_MAX, "generation"),
    TEXT(PhaseRecord, "submission", submission, MAYBE),
    TEXT(PhaseRecord, "dies_by", dies_by, MAYBE),
    INT64(PhaseRecord, "dies_usec", dies_usec, MAYBE),
    TEXT(PhaseRecord, "eval_submission", eval.submission, MAYBE),
    COUNT(PhaseRecord, "eval_present_step", eval.present.step, MAYBE),
    COUNT(PhaseRecord, "eval_present_generation", eval.present.generation, MAYBE),
    COUNT(PhaseRecord, "eval_step", eval.step, MAYBE),
    ELEMENTS(PhaseRecord, FIELD_ARRAY, "eval_results", eval.results, eval.n_results, MAYBE,
             EvalResult, eval_result_fields, RECORD_EVALS_MAX, "step"),
    ELEMENTS(PhaseRecord, FIELD_ARRAY, "eval_asked", eval.asked, eval.n_asked, MAYBE,
             CheckpointCommit, asked_fields, RECORD_ASKED_MAX, "uri"),
};

static const Field report_fields[] = {
    INT(RankReport, "slot", slot, NEEDED, 0, RECORD_SLOTS_MAX - 1),
    INT(RankReport, "rank", rank, NEEDED, 0, RECORD_RANKS_MAX - 1),
    INT(RankReport, "pid", pid, MAYBE, 0, INT32_MAX),
    CHOICE(RankReport, "state", state, NEEDED, rank_state_names),
    INT(RankReport, "exit_code", exit_code, MAYBE, -128, 255),
    COUNT(RankReport, "step", step, MAYBE),
    INT(RankReport, "stage", stage, MAYBE, 0, STAGE_COUNT - 1),
    BOOL(RankReport, "unnamed", unnamed),
    BOOL(RankReport, "hung", hung),
    BOOL(RankReport, "killed", killed),
    INT(RankReport, "unmet", unmet, MAYBE, 0, RECORD_RANKS_MAX),
    BOOL(RankReport, "stuck", stuck),
    TEXT(RankReport, "text", text, MAYBE),
    INT64(RankReport, "at_usec", at_usec, MAYBE),
    INT64(RankReport, "started_usec", started_usec, MAYBE),
    INT64(RankReport, "ready_usec", ready_usec, MAYBE),
    INT64(RankReport, "joined_usec", joined_usec, MAYBE),
};

static const Field ranks_fields[] = {
    TEXT(RanksRecord, "node", node, NEEDED),
    INT64(RanksRecord, "incarnation", incarnation, NEEDED),
    COUNT(RanksRecord, "generation", generation, NEEDED),
    INT64(RanksRecord, "world_revision", world_revision, NEEDED),
    ELEMENTS(RanksRecord, FIELD_LIST, "ranks", ranks, n_ranks, NEEDED, RankReport, report_fields,
             RECORD_SLOTS_MAX, "slot"),
    INT64(RanksRecord, "killed_usec", killed_usec, MAYBE),
    COUNT(RanksRecord, "first_step", first_step, MAYBE),
    INT64(RanksRecord, "first_step_usec", first_step_usec, MAYBE),
    BOOL(RanksRecord, "left", left),
    BOOL(RanksRecord, "finished", finished),
};

static const Field rendezvous_fields[] = {
    TEXT(RendezvousRecord, "address", address, NEEDED),
};

static const Field commit_fields[] = {
    COUNT(CheckpointCommit, "step", step, NEEDED),
    COUNT(CheckpointCommit, "generation", generation, NEEDED),
    TEXT(CheckpointCommit, "uri", uri, NEEDED),
    HASH(CheckpointCommit, "hash", hash),
    HASH(CheckpointCommit, "digest", digest),
    BOOL(CheckpointCommit, "struck_out", struck_out),
    INT64(CheckpointCommit, "at_usec", at_usec, MAYBE),
    TEXT(CheckpointCommit, "plans", plans, MAYBE),
    TEXT(CheckpointCommit, "takes_over", takes_over, MAYBE),
};

static const Field checkpoints_fields[] = {
    TEXT(CheckpointsRecord, "submission", submission, MAYBE),
    ELEMENTS(CheckpointsRecord, FIELD_ARRAY, "commits", commits, n_commits, NEEDED, CheckpointCommit,
             commit_fields, RECORD_COMMITS_MAX, "uri"),
};

static const Field progress_fields[] = {
    COUNT(ProgressRecord, "generation", generation, NEEDED),
    COUNT(ProgressRecord, "step", step, NEEDED),
    INT64(ProgressRecord, "steps", steps, MAYBE),
    DOUBLE(ProgressRecord, "loss", loss),
    DOUBLE(ProgressRecord, "grad_norm", grad_norm),
    DOUBLE(ProgressRecord, "lr", lr),
    DOUBLE(ProgressRecord, "samples_per_s", samples_per_sec),
    DOUBLE(ProgressRecord, "step_s", step_sec),
    DOUBLE(ProgressRecord, "saving_s", saving_sec),
    INT64(ProgressRecord, "samples_seen", samples_seen, MAYBE),
    INT64(ProgressRecord, "at_usec", at_usec, MAYBE),
    INT64(ProgressRecord, "unsaved_since_usec", unsaved_since_usec, MAYBE),
    TEXT(ProgressRecord, "save_error", save_error, MAYBE),
    INT64(ProgressRecord, "save_next_bytes", save_next_bytes, MAYBE),
    INT64(ProgressRecord, "save_free_bytes", save_free_bytes, MAYBE),
    INT64(ProgressRecord, "waits_since_usec", waits_since_usec, MAYBE),
    INT(ProgressRecord, "waits_rank", waits_rank, MAYBE, 0, RECORD_RANKS_MAX),
    INT64(ProgressRecord, "diverging_since", diverging_since, MAYBE),
    TEXT(ProgressRecord, "diverging", diverging, MAYBE),
    INT64(ProgressRecord, "metrics_lost", metrics_lost, MAYBE),
    INT64(ProgressRecord, "metrics_lost_first", metrics_lost_first, MAYBE),
    INT64(ProgressRecord, "metrics_lost_last", metrics_lost_last, MAYBE),
    COUNT(ProgressRecord, "committed_step", committed.step, MAYBE),
    COUNT(ProgressRecord, "committed_generation", committed.generation, MAYBE),
};

static const Field incident_fields[] = {
    TEXT(IncidentRecord, "id", id, NEEDED),
    CHOICE(IncidentRecord, "state", state, NEEDED, incident_state),
    CHOICE(IncidentRecord, "severity", severity, MAYBE, severity_names),
    TEXT(IncidentRecord, "job", job, NEEDED),
    TEXT(IncidentRecord, "submission", submission, MAYBE),
    TEXT(IncidentRecord, "cause", cause, NEEDED),
    TEXT(IncidentRecord, "node", node, MAYBE),
    INT(IncidentRecord, "rank", rank, MAYBE, -1, RECORD_RANKS_MAX - 1),
    COUNT(IncidentRecord, "generation", generation, MAYBE),
    COUNT(IncidentRecord, "step", step, MAYBE),
    TEXT(IncidentRecord, "evidence", evidence, MAYBE),
    INT64(IncidentRecord, "at_usec", at_usec, MAYBE),
    INT64(IncidentRecord, "resolved_usec", resolved_usec, MAYBE),
    BOOL(IncidentRecord, "ended", ended),
    INT64(IncidentRecord, "lost_steps", lost_steps, MAYBE),
    INT64(IncidentRecord, "reached_step", reached_step, MAYBE),
    DOUBLE(IncidentRecord, "detect_s", detect_sec),
    DOUBLE(IncidentRecord, "decide_s", decide_sec),
    DOUBLE(IncidentRecord, "stop_s", stop_sec),
    DOUBLE(IncidentRecord, "start_s", start_sec),
    DOUBLE(IncidentRecord, "restore_s", restore_sec),
    DOUBLE(IncidentRecord, "replay_s", replay_sec),
    INT64(IncidentRecord, "first_step_usec", first_step_usec, MAYBE),
    INT64(IncidentRecord, "hold_until_usec", hold_until_usec, MAYBE),
    INT(IncidentRecord, "hold_nodes", hold_nodes, MAYBE, 0, RECORD_RANKS_MAX),
};

static const Field delivery_fields[] = {
    TEXT(Delivery, "sink", sink, NEEDED),
    CHOICE(Delivery, "state", state, NEEDED, delivery_state_names),
    CHOICE(Delivery, "severity", severity, MAYBE, severity_names),
    INT(Delivery, "attempts", attempts, MAYBE, 0, INT32_MAX),
    INT64(Delivery, "at_usec", at_usec, MAYBE),
    TEXT(Delivery, "text", text, MAYBE),
};

static const Field alert_fields[] = {
    TEXT(AlertRecord, "id", id, NEEDED),
    INT64(AlertRecord, "incident_usec", incident_usec, NEEDED),
    INT64(AlertRecord, "term", term, NEEDED),
    BOOL(AlertRecord, "settled", settled),
    ELEMENTS(AlertRecord, FIELD_ARRAY, "deliveries", deliveries, n_deliveries, MAYBE, Delivery,
             delivery_fields, RECORD_DELIVERIES_MAX, "sink"),
};

static const Field uri_fields[] = {
    TEXT(RequestUri, "uri", uri, NEEDED),
    BOOL(RequestUri, "write", write),
    TEXT(RequestUri, "marker", marker, MAYBE),
};

static const Field peer_fields[] = {
    TEXT(RequestPeer, "address", address, NEEDED),
};

static const char *const request_outcome_names[] = {"open", "done", "refused", "failed"};

static const Field request_fields[] = {
    TEXT(RequestRecord, "id", id, NEEDED),
    TEXT(RequestRecord, "kind", kind, NEEDED),
    TEXT(RequestRecord, "target", target, MAYBE),
    TEXT(RequestRecord, "submission", submission, MAYBE),
    TEXT(RequestRecord, "machine_id", machine_id, MAYBE),
    TEXT(RequestRecord, "answer", answer, MAYBE),
    CHOICE(RequestRecord, "outcome", outcome, MAYBE, request_outcome_names),
    INT64(RequestRecord, "at_usec", at_usec, MAYBE),
    OBJECT(RequestRecord, "commit", commit, MAYBE, commit_fields),
    ELEMENTS(RequestRecord, FIELD_ARRAY, "deliveries", deliveries, n_deliveries, MAYBE, Delivery,
             delivery_fields, RECORD_DELIVERIES_MAX, "sink"),
    ELEMENTS(RequestRecord, FIELD_ARRAY, "uris", uris, n_uris, MAYBE, RequestUri, uri_fields, RECORD_URIS_MAX, NULL),
    ELEMENTS(RequestRecord, FIELD_ARRAY, "peers", peers, n_peers, MAYBE, RequestPeer, peer_fields, RECORD_PEERS_MAX,
             NULL),
    TEXT(RequestRecord, "by", by, MAYBE),
};

static const Field log_place_fields[] = {
    INT(LogPlace, "rank", rank, NEEDED, 0, RECORD_RANKS_MAX - 1),
    INT64(LogPlace, "file", file, MAYBE),
    COUNT(LogPlace, "offset", offset, MAYBE),
};

static const Field log_request_fields[] = {
    TEXT(LogRequestRecord, "job", job, NEEDED),
    COUNT(LogRequestRecord, "generation", generation, NEEDED),
    COUNT(LogRequestRecord, "seq", seq, NEEDED),
    BOOL(LogRequestRecord, "follow", follow),
    COUNT(LogRequestRecord, "tail_bytes", tail_bytes, MAYBE),
    COUNT(LogRequestRecord, "pause_usec", pause_usec, MAYBE),
    ELEMENTS(LogRequestRecord, FIELD_LIST, "places", places, n_places, MAYBE, LogPlace, log_place_fields,
             RECORD_SLOTS_MAX, "rank"),
};

static const Field log_part_fields[] = {
    OBJECT(LogPart, "next", next, NEEDED, log_place_fields),
    COUNT(LogPart, "bytes", bytes, MAYBE),
    COUNT(LogPart, "skipped", skipped, MAYBE),
    BOOL(LogPart, "missing", missing),
};

static const Field log_lines_fields[] = {
    COUNT(LogLinesRecord, "seq", seq, NEEDED),
    ELEMENTS(LogLinesRecord, FIELD_LIST, "parts", parts, n_parts, MAYBE, LogPart, log_part_fields,
             RECORD_SLOTS_MAX, NULL),
    STRING(LogLinesRecord, "text", text, MAYBE),
    BOOL(LogLinesRecord, "more", more),
    BOOL(LogLinesRecord, "end", end),
    TEXT(LogLinesRecord, "refused", refused, MAYBE),
};

/* clang-format on */

const RecordTable record_tables[] = {
    {"leader", leader_fields, ELEMENTSOF(leader_fields)},
    {"nodes", node_fields, ELEMENTSOF(node_fields)},
    {"health", health_fields, ELEMENTSOF(health_fields)},
    {"cordons", cordon_fields, ELEMENTSOF(cordon_fields)},
    {"specs", spec_fields, ELEMENTSOF(spec_fields)},
    {"desired", desired_fields, ELEMENTSOF(desired_fields)},
    {"programs", program_fields, ELEMENTSOF(program_fields)},
    {"worlds", world_fields, ELEMENTSOF(world_fields)},
    {"secrets", secret_fields, ELEMENTSOF(secret_fields)},
    {"phases", phase_fields, ELEMENTSOF(phase_fields)},
    {"ranks", ranks_fields, ELEMENTSOF(ranks_fields)},
    {"rendezvous", rendezvous_fields, ELEMENTSOF(rendezvous_fields)},
    {"checkpoints", checkpoints_fields, ELEMENTSOF(checkpoints_fields)},
    {"progress", progress_fields, ELEMENTSOF(progress_fields)},
    {"evals", eval_fields, ELEMENTSOF(eval_fields)},
    {"incidents", incident_fields, ELEMENTSOF(incident_fields)},
    {"alerts", alert_fields, ELEMENTSOF(alert_fields)},
    {"requests", request_fields, ELEMENTSOF(request_fields)},
    {"asks", log_request_fields, ELEMENTSOF(log_request_fields)},
    {"lines", log_lines_fields, ELEMENTSOF(log_lines_fields)},
};
const size_t n_record_tables = ELEMENTSOF(record_tables);

static int unchecked(const char *source, const void *record, Error *err)
{
    (void)source;
    (void)record;
    (void)err;
    return 0;
}

static int decode_record(const char *source, const char *text, size_t n_bytes, const Field *fields,
                         size_t n_fields, void *record, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;

    int64_t version = 0;
    JsonReader reader = json_open(source, root, JSON_ANY_KEYS, err);
    json_get_int(&reader, "v", JSON_REQUIRED, 1, INT64_MAX, &version);
    if (reader.r == 0 && version > RECORD_VERSION)
        return error_set(err, -EPROTONOSUPPORT,
                         "%s: v: record version %lld is newer than %d, which this program knows; "
                         "upgrade it",
                         source, (long long)version, RECORD_VERSION);
    if (reader.r == 0 && version < RECORD_VERSION_OLDEST)
        return error_set(
            err, -EPROTONOSUPPORT,
            "%s: v: record version %lld is older than %d, the oldest that this program "
            "reads: it was written before sdtrain 0.2.0",
            source, (long long)version, RECORD_VERSION_OLDEST);
    field_table_read(&reader, fields, n_fields, record);
    return json_close(&reader);
}

static char *encode_record(const void *record, const Field *fields, size_t n_fields,
                           const char *old_text)
{
    json_t *old = old_text ? json_loads(old_text, 0, NULL) : NULL;
    _cleanup_json_ json_t *root = json_is_object(old) ? old : json_object();
    if (old && old != root)
        json_decref(old);
    (void)json_object_set_new(root, "v",
                              json_integer(RECORD_VERSION)); /* cannot fail: root is an object */
    field_table_write(root, fields, n_fields, record);
    char *text = json_dumps(root, JSON_COMPACT);
    assert(text); /* cannot fail: json_loads() or this function has made the tree */
    return text;
}

#define DEFINE_RECORD(Type, prefix, table, check)                                                  \
    int prefix##_decode(const char *source, const char *text, size_t n_bytes, Type *ret,           \
                        Error *err)                                                                \
    {                                                                                              \
        memset(ret, 0, sizeof(*ret));                                                              \
        int r = decode_record(source, text, n_bytes, table, ELEMENTSOF(table), ret, err);          \
        r = r < 0 ? r : check(source, ret, err);                                                   \
        if (r < 0)                                                                                 \
            prefix##_clear(ret);                                                                   \
        return r;                                                                                  \
    }                                                                                              \
    char *prefix##_encode(const Type *record, const char *old_text)                                \
    {                                                                                              \
        return encode_record(record, table, ELEMENTSOF(table), old_text);                          \
    }                                                                                              \
    void prefix##_clear(Type *record)                                                              \
    {                                                                                              \
        field_table_clear(record, table, ELEMENTSOF(table));                                       \
        memset(record, 0, sizeof(*record));                                                        \
    }

DEFINE_RECORD(LeaderRecord, leader_record, leader_fields, unchecked)
DEFINE_RECORD(NodeRecord, node_record, node_fields, unchecked)
DEFINE_RECORD(HistoryRecord, history_record, history_fields, unchecked)
DEFINE_RECORD(HealthRecord, health_record, health_fields, unchecked)
DEFINE_RECORD(CordonRecord, cordon_record, cordon_fields, unchecked)
DEFINE_RECORD(SpecRecord, spec_record, spec_fields, unchecked)
DEFINE_RECORD(DesiredRecord, desired_record, desired_fields, unchecked)
DEFINE_RECORD(ProgramRecord, program_record, program_fields, unchecked)
DEFINE_RECORD(WorldRecord, world_record, world_fields, record_check_world)
/* Checks a secret. The error's text must not quote any part of the secret. */
static int secret_check(const char *source, SecretRecord *record, Error *err)
{
    uint8_t bytes[SECRET_BYTES];
    bool good = secret_parse(record->secret, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    return good ? 0
                : error_set(err, -EINVAL, "%s: secret: not %d hexadecimal digits", source,
                            2 * SECRET_BYTES);
}

DEFINE_RECORD(SecretRecord, secret_record, secret_fields, secret_check)
DEFINE_RECORD(PhaseRecord, phase_record, phase_fields, unchecked)
DEFINE_RECORD(RanksRecord, ranks_record, ranks_fields, unchecked)
DEFINE_RECORD(RendezvousRecord, rendezvous_record, rendezvous_fields, unchecked)
DEFINE_RECORD(CheckpointsRecord, checkpoints_record, checkpoints_fields, unchecked)
DEFINE_RECORD(ProgressRecord, progress_record, progress_fields, unchecked)
DEFINE_RECORD(EvalRecord, eval_record, eval_fields, unchecked)
DEFINE_RECORD(IncidentRecord, incident_record, incident_fields, unchecked)
DEFINE_RECORD(AlertRecord, alert_record, alert_fields, unchecked)
DEFINE_RECORD(RequestRecord, request_record, request_fields, unchecked)

/* Checks a request for log lines. The node uses the job's name as part of a path, so the name must be valid. */
static int log_request_check(const char *source, const LogRequestRecord *ask, Error *err)
{
    if (!name_is_valid(ask->job))
        return error_set(err, -EINVAL, "%s: job: \"%s\" is not a job's name", source, ask->job);
    if (ask->generation == 0 || ask->seq == 0)
        return error_set(err, -EINVAL, "%s: %s: 0", source, ask->seq ? "generation" : "seq");
    return 0;
}

/* Checks an answer with log lines: the sizes of the parts must add up to the size of the text. */
static int log_lines_check(const char *source, const LogLinesRecord *lines, Error *err)
{
    size_t left = lines->text ? strlen(lines->text) : 0;
    for (size_t i = 0; i < lines->n_parts; i++) {
        if ((uint64_t)lines->parts[i].bytes > left)
            return error_set(err, -EINVAL, "%s: parts[%zu].bytes: %lld, but the text has %zu",
                             source, i, (long long)lines->parts[i].bytes, left);
        left -= (size_t)lines->parts[i].bytes;
    }
    return left == 0
               ? 0
               : error_set(err, -EINVAL, "%s: text: %zu bytes belong to no part", source, left);
}

DEFINE_RECORD(LogRequestRecord, log_request_record, log_request_fields, log_request_check)
DEFINE_RECORD(LogLinesRecord, log_lines_record, log_lines_fields, log_lines_check)
