/* SPDX-License-Identifier: Apache-2.0 */
/* runner-internal.h - what the parts of a runner share: runner.c (its life), runner-start.c (what is looked at before
 * the world goes), runner-reports.c (reports of the program, and requests to it), runner-results.c (results of an
 * evaluation) and runner-standstill.c (a program that hangs).
 *
 * Ownership: runner_run() owns the Runner. Errors: -errno with a text. Threads: one.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 */
#pragma once

#include "base/dead-man.h"
#include "exec/command.h"
#include "exec/output.h"
#include "exec/report-socket.h"
#include "exec/resources/flight-record.h"
#include "exec/runner.h"
#include "protocol/channel.h"
#include "protocol/exec-variables.h"
#include "protocol/job.h"

enum {
    NEWS_PERIOD_MSEC =
        50, /* stages, and steps in the long run, are sent at most 20 times a second */
    STEPS_BURST_MSEC = 1000,  /* so long steps may be sent as they come: a job that fails has few */
    CHANNEL_WAIT_MSEC = 2000, /* so long a message waits for room in a full channel */
    LINES_PER_SEC_MAX = 20,   /* of what a program reports */
    SUBMISSION_MAX = 40,
    POLL_MAX = 3 + 1 + REPORTERS_MAX,
};

/* of the folders for temporary files in the folder EXEC_DIR_VARIABLE of a node */
#define RUNNER_TMP_PREFIX "tmp-"

typedef enum RunnerState {
    AWAITS_ASSIGN,
    SETS_UP,
    AWAITS_GO,
    RUNS,
    DRAINS,         /* the program has ended, and its output may not be written yet */
    AWAITS_RESULTS, /* of an evaluation: sdtraind puts them into etcd */
    OVER,
} RunnerState;

typedef struct Runner {
    RunnerState state;
    int channel;
    char *const *own_environment;
    DeadMan dead_man;

    ChannelMessage assign;
    Job *job;
    uint64_t lease_usec; /* CLOCK_BOOTTIME at which the node's lease may end; 0: unknown */
    char folder[200];    /* of this slot */
    char tmp[240];       /* of the world's ranks on this node */
    int tmp_hold;        /* keeps tmp from being removed */
    /* UUIDs of the GPUs that the program sees; empty: it runs on CPUs. */
    char gpus[CHANNEL_GPUS_MAX];
    char submission[SUBMISSION_MAX];
    ExecValues values;
    char **secrets;
    SecretSet masked;
    int port; /* the socket that holds MASTER_PORT; rank 0 only */
    int setup_lock;

    Command command; /* the setup, or the program */
    Output output;
    ReportSocket socket;
    uint64_t state_usec;   /* when the state began */
    uint64_t started_usec; /* when the program started */

    int64_t step;
    TrainStage stage;
    ChannelMessage step_news; /* rank 0: the last step as it is sent */
    bool stage_is_new, step_is_new;
    uint64_t stage_usec;    /* when a stage was last sent */
    uint64_t steps_usec;    /* when the last sent step would be due at one a period */
    uint64_t step_usec;     /* when the last step was reported */
    int64_t samples;        /* since step 0, as reported last */
    uint64_t samples_usec;  /* when they were reported; 0: never */
    double samples_per_sec; /* 0: not known */
    double loss;            /* found in the output before its step */
    EvalResults results;    /* rank 0 of an evaluation */
    int64_t registered;     /* step of the checkpoint that waits for its verdict; -1: none */
    bool polls;             /* the program looks for LEAVE by itself, so no signal need tell it */
    bool is_leaving, has_finished, is_fenced;
    bool is_given_up;  /* the program hangs: it is killed, once it has told where it stands */
    bool is_hung;      /* sdtraind has found that */
    char stood[160];   /* why the program is given up */
    char stood_state;  /* state of its main process then, as /proc has it */
    int stacks_signal; /* a process of the program prints its stacks on this signal; 0: none does */
    pid_t stacks_pid;  /* that process */
    uint64_t stacks_usec;        /* when it got the signal; 0: it did not */
    uint64_t stacks_printed;     /* bytes of output until then */
    FlightRecord flight;         /* of its collectives */
    uint64_t sign_usec;          /* when the program last printed or reported */
    uint64_t n_printed;          /* bytes of output until then */
    uint64_t n_accepted;         /* connections that have got LEAVE */
    uint64_t leave_usec;         /* until then the program may leave */
    uint64_t kill_usec;          /* when the program got SIGKILL; 0: it did not */
    int64_t n_bad;               /* reports that could not be read */
    uint64_t lines_usec;         /* begin of the present second */
    int64_t n_lines, n_unlogged; /* lines of this second */
    int code;
} Runner;

/* Returns the value of a variable of the runner's own environment, or NULL. */
const char *runner_variable(const Runner *r, const char *name);
bool runner_is_rank0(const Runner *r);

/* ---- to sdtraind ---- */

/* Sends what must arrive: waits for room in a full channel for CHANNEL_WAIT_MSEC. Returns 0 or -errno. */
int runner_send(Runner *r, ChannelMessage *m);
/* Sends the stage and the step that were not sent yet, unless too many were sent before: a program that reports often
 * does not fill the channel. Returns when the function is due again. */
uint64_t runner_send_news(Runner *r, uint64_t now_usec);
/* Sends them now. */
void runner_flush_news(Runner *r);
void runner_set_stage(Runner *r, TrainStage stage);
/* Writes the present stage into a stage or an error. */
void runner_write_stage(const Runner *r, ChannelMessage *m);

/* ---- before the world goes ---- */

/* Reads the job and the secrets. An error means that the job can never run here. */
int runner_read_job(Runner *r, Error *err);
/* Finds the GPUs that the program sees. */
int runner_find_gpus(Runner *r, Error *err);
/* Makes the folder of this slot anew: what an earlier program left there is gone. */
int runner_make_folder(Runner *r, Error *err);
void runner_fill_values(Runner *r);
/* Returns the program's environment, which memory_free_texts() frees. */
char **runner_environment(const Runner *r);
int runner_check_program(const Runner *r, Error *err);
/* Holds the port of MASTER_PORT, and reports rank 0's address. */
int runner_hold_port(Runner *r, Error *err);

/* ---- reports of the program, and requests to it ---- */

void runner_take_packet(void *userdata, const char *packet, size_t n);
void runner_take_pattern(void *userdata, OutputNumber kind, const char *number);
bool runner_may_log(Runner *r);
/* Logs how many lines were not logged, if there are any. */
void runner_note_unlogged(Runner *r);
/* Returns the steps of checkpoints that evaluations read, "5,10"; the caller frees it. */
char *runner_format_held(const ChannelHeld *held);
/* Tells the program what became of the checkpoint that it has registered. */
void runner_pass_verdict(Runner *r, const ChannelMessage *verdict);
/* Sends the request to leave to connections that have not got it. */
void runner_send_leave(Runner *r, uint64_t now_usec);

/* ---- results of an evaluation ---- */

void runner_take_results(Runner *r, const EvalResults *of);
/* Notes a text for people, which the results have. */
void runner_take_status(Runner *r, const char *status);
/* Returns whether this rank reports the results: it is rank 0 of an evaluation. */
bool runner_has_results(const Runner *r);
/* Sends the results to sdtraind. Returns 0, or -errno: then the evaluation has none. */
int runner_send_results(Runner *r);

/* ---- a program that hangs ---- */

/* Gives up a program that has neither printed nor reported for exec.silence_s. Returns when that is due. */
uint64_t runner_watch_silence(Runner *r, uint64_t now_usec);
/* Logs what the program's processes do, lets it print its stacks and write its flight record, and kills it. */
void runner_give_up(Runner *r, const char *why, uint64_t now_usec);
/* Kills a program that has told where it stands. Returns when that is due. */
uint64_t runner_watch_standstill(Runner *r, uint64_t now_usec);
/* Tells whether the kernel shows the program stopped, or waiting for a driver or a disk. */
bool runner_is_stuck(const Runner *r);
/* Writes why the program was given up, and where it stood. tail: its last output. */
void runner_write_standstill(const Runner *r, const char *tail, char *ret, size_t size);
void runner_kill_program(Runner *r);
