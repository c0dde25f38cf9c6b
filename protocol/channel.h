/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - the messages between a daemon and a trainer over a SOCK_SEQPACKET socketpair.
 *
 * One message is one packet: a JSON object of at most 64 KiB with "type". The trainer's end is descriptor 3
 * (SDTRAIN_CHANNEL=3). The receiver skips a message of an unknown type with a warning, so that different versions work
 * together.
 *
 *   daemon -> trainer   assign go alive checkpoint stop committed refused hung
 *   trainer -> daemon   hello rendezvous ready stage step saved error done found
 *
 * Ownership: strings inside a ChannelMessage are fixed buffers, except assign.spec, which channel_receive() allocates
 *            and channel_message_clear() frees; senders borrow. Clearing wipes the message, and every packet's buffer
 *            is wiped, because an assign message contains a secret.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EAGAIN: no packet (non-blocking receive). -EPIPE: the other side has closed the channel. -EBADMSG: the
 *            packet is not a valid message; the text has the reason. -EMSGSIZE: the message is too long.
 * Threads:   one sender and one receiver at a time per end; the two may be different threads.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "protocol/eval-results.h"
#include "protocol/train-stage.h"

enum {
    CHANNEL_FD = 3,
    CHANNEL_PACKET_MAX = 64 * 1024,
    /* for assign.spec as a JSON string; the other fields of assign need the rest of the packet */
    CHANNEL_SPEC_MAX = 52 * 1024,
    CHANNEL_GPUS_MAX = 64 * 41, /* "GPU-01234567-0123-0123-0123-0123456789ab" of each slot */
    CHANNEL_URI_MAX = 512,
    CHANNEL_ADDRESS_MAX = 128,
    CHANNEL_TEXT_MAX = 512,
    CHANNEL_SOURCES_MAX = 33 * 129,
    CHANNEL_SAVE_ERROR_MAX = 200,
    CHANNEL_DIVERGING_MAX = 160,
    CHANNEL_HELD_MAX = 16, /* as many as the record of a job's commits names */
};

/* Environment variables by which sdtraind passes its settings paths_read and paths_write to its ranks, as JSON arrays
 * of strings. If unset, all paths are allowed. */
#define PATHS_READ_VARIABLE "SDTRAIN_PATHS_READ"
#define PATHS_WRITE_VARIABLE "SDTRAIN_PATHS_WRITE"

typedef enum ChannelType {
    /* daemon -> trainer */
    CHANNEL_ASSIGN,     /* has the job spec, generation, rank, world and manifest to restore */
    CHANNEL_GO,         /* has the rendezvous address, where the rank must join now */
    CHANNEL_ALIVE,      /* re-arms the dead-man timer for alive_usec */
    CHANNEL_CHECKPOINT, /* rank 0 must save after this step and continue */
    CHANNEL_STOP,       /* rank 0 must finish the step, save and exit with code 0 */
    CHANNEL_COMMITTED,  /* the checkpoint of `step` is recorded in etcd */
    CHANNEL_REFUSED,    /* etcd refused the commit: this world has ended */
    CHANNEL_HUNG, /* to a program's runner: end the program, which hangs, and report its state */
    /* trainer -> daemon */
    CHANNEL_HELLO,      /* the process runs; has the pid */
    CHANNEL_RENDEZVOUS, /* from rank 0: the address of its rendezvous store */
    CHANNEL_READY,      /* the state is restored; the rank waits for go */
    CHANNEL_STAGE,      /* has the step and stage; before each collective, at most 20 a second */
    CHANNEL_STEP,       /* from rank 0 after each step: loss, samples/s and more */
    CHANNEL_SAVED,      /* from rank 0: a checkpoint is written; answered by committed or refused */
    CHANNEL_ERROR,      /* has the reason why this process will exit, and its exit code */
    CHANNEL_DONE,       /* the last step is done, or the rank leaves on request; has the digest */
    /* From rank 0 if assign.find requests a search: one checkpoint per message, the oldest first. The last message is
     * answered by committed or refused. */
    CHANNEL_FOUND,
    /* From rank 0 of an evaluation whose program has ended with 0: what the program has reported. Answered by committed
     * or refused. */
    CHANNEL_RESULTS,
    CHANNEL_TYPES,
} ChannelType;

/* Numbers and times of this process's requests to its store since the process started. */
typedef struct ChannelStoreUse {
    int64_t puts, gets;
    double put_sec, get_sec; /* put_sec includes waits for a flush */
} ChannelStoreUse;

/* Steps of checkpoints that evaluations read: rank 0 does not remove these. */
typedef struct ChannelHeld {
    int64_t steps[CHANNEL_HELD_MAX];
    size_t n;
} ChannelHeld;

/* The fields of assign: the job to train, and the rank and world. */
typedef struct ChannelAssign {
    int rank, world_size;
    char job[64], node[64];           /* names of the job and of this node */
    char *spec;                       /* the job file's text */
    char resume_uri[CHANNEL_URI_MAX]; /* manifest to restore; empty: start at step 0 */
    Hash resume_hash;                 /* hash of the manifest to restore */
    int64_t resume_step;              /* step of resume_uri; a trainer reads it in the manifest */
    int find; /* ResumeFind (cluster/records.h): whether to search checkpoint.uri first */
    /* The manifest is of another job (job start --resume): the rank restores its state, but not its history. */
    bool adopt;
    /* Id of the `job recover` request by which this world may take the checkpoint folder over, once. */
    char takes_over[40];
    /* Hashes of the data when the job was submitted; empty: unknown. */
    char sources[CHANNEL_SOURCES_MAX];
    char submission[33]; /* the job's submission: 32 hex digits, random for each submission */
    /* PCI addresses or UUIDs of the GPUs of a program's ranks on this node, separated by commas; empty: none. */
    char gpus[CHANNEL_GPUS_MAX];
    /* PCI address of the slot's GPU, "0000:3b:00"; empty: the slot has no GPU, or its GPU is unknown */
    char gpu[24];
    char bind_address[CHANNEL_ADDRESS_MAX]; /* this node's address for collectives */
    char secret[65]; /* the world's secret: 64 hex digits; empty: no secret */
    /* Unused, always empty. The field remains because trainers of 0.2.0 refuse an assign without it. */
    char numerics[1024];
    uint64_t startup_usec; /* time in which the rank should become ready; 0: unknown */
    /* Time until the daemon sends SIGKILL, unless `alive` re-arms the timer. */
    uint64_t alive_usec;
} ChannelAssign;

/* A message. The union has the fields that only some types have. */
typedef struct ChannelMessage {
    ChannelType type;
    int64_t generation; /* in messages of all types except hello */
    /* The step that the message is about. Types: checkpoint, committed, refused, ready, stage, step, saved, error,
     * done, found, results. */
    int64_t step;

    union {
        /* All fields of an assign message. This member is the first and the largest, so {0} clears the whole union. */
        ChannelAssign assign;
        struct {                 /* fields of alive */
            uint64_t alive_usec; /* time until SIGKILL, unless another alive follows */
            /* To the runner of a program: CLOCK_BOOTTIME at which the node's lease may end; 0: unknown. */
            uint64_t lease_usec;
        };
        struct { /* fields of rendezvous, go and committed */
            /* rendezvous, go: address of rank 0's rendezvous store */
            char address[CHANNEL_ADDRESS_MAX];
            ChannelHeld held; /* go, committed */
        };
        int pid; /* hello: pid of the trainer */

        struct {              /* fields of stage, error and hung */
            TrainStage stage; /* the rank's present stage, or its last stage */
            /* stage: how long the ranks have waited. In STAGE_SAVING they wait for a save, otherwise for the data of
             * rank waits_rank and perhaps of other ranks. 0: the ranks do not wait. */
            uint64_t waited_usec;
            int waits_rank;
            bool unnamed;  /* stage, error: the program names no stage, and `stage` means nothing */
            int exit_code; /* error: the exit code of the process */
            int unmet;     /* error: 1 + the number of a rank that could not be joined; 0: none */
            bool hung;     /* error: the program was killed because it had been silent too long */
            bool stuck; /* error: hung, and the kernel showed it stopped or waiting for a device */
            char text[CHANNEL_TEXT_MAX]; /* error, hung: the reason, a text for people */
        };

        struct { /* fields of step */
            double loss;
            double samples_per_sec;
            int64_t samples_seen; /* number of samples since step 0 */
            double grad_norm;     /* norm of the gradient before clipping */
            double lr;            /* learning rate of the step */
            int64_t steps;        /* the job's last step */
            double step_sec;      /* how long the step took */
            double data_sec;      /* part of step_sec spent waiting for data */
            /* how long rank 0 has waited for saves since this world's first step */
            double saving_sec;
            int64_t failed_saves; /* number of failed saves since this process started */
            /* Since when every save has failed, CLOCK_BOOTTIME; 0: the newest save succeeded. */
            uint64_t unsaved_since_usec;
            /* Why the newest save failed, for people; a long text is cut. */
            char save_error[CHANNEL_SAVE_ERROR_MAX];
            /* Estimated size of the next save (0: unknown), and the free space of its store. */
            int64_t save_next_bytes, save_free_bytes;
            /* The step at which divergence began; 0: training does not diverge. */
            int64_t diverging_since;
            /* A text for people: which value is too large. */
            char diverging[CHANNEL_DIVERGING_MAX];
            int64_t metrics_lost; /* number of steps whose metrics are lost */
            /* the first and the last step with lost metrics */
            int64_t metrics_lost_first, metrics_lost_last;
        };

        struct {                         /* fields of saved and found; done uses digest and end */
            char uri[CHANNEL_URI_MAX];   /* URI of the manifest */
            Hash hash;                   /* hash of the manifest */
            Hash digest;                 /* digest of the training state */
            char end[CHANNEL_TEXT_MAX];  /* done: "finished" or "left" */
            int64_t made_by;             /* found: the generation that wrote the checkpoint */
            char plans[HASH_TEXT_BYTES]; /* hash of the plan set; empty: none */
            bool more;                   /* found: another found message follows */
            /* saved: time from the copy of the state until the manifest was written */
            double write_sec;
            double blocked_sec;    /* saved: part of write_sec in which training waited */
            int64_t saved_bytes;   /* saved: bytes that all ranks have saved */
            ChannelStoreUse store; /* saved: requests to the checkpoints' store */
        };

        EvalResults results; /* fields of results */
    };
} ChannelMessage;

/* Only these two functions use the socket (channel-socket.c). A simulator defines its own versions, which pass the
 * structs on directly; fd is then the value that the simulator's process_start() has returned. */
int channel_send(int fd, const ChannelMessage *message, Error *err);
/* Receives a message into *ret, which must be zeroed or cleared before. */
int channel_receive(int fd, ChannelMessage *ret, Error *err);
/* The codec alone, for tests and the fuzzer. channel_encode() allocates *ret. */
int channel_encode(const ChannelMessage *message, char **ret, size_t *ret_bytes, Error *err);
int channel_decode(const char *packet, size_t n_bytes, ChannelMessage *ret, Error *err);
void channel_message_clear(ChannelMessage *message);
/* Refuses the text of a job file that is too long for assign, with -EMSGSIZE. source: name of the file in errors. */
int channel_check_spec(const char *source, const char *spec, Error *err);
const char *channel_type_name(ChannelType type);

/* ---- for the documents ---- */

typedef struct ChannelField {
    const char *name, *kind;
    unsigned types; /* the message types with this field, one bit per ChannelType */
    bool newer;     /* may be missing: older versions do not send it */
} ChannelField;

/* For the documents: gets field number i of the table in channel.c. Returns false after the last field. */
bool channel_field(size_t i, ChannelField *ret);
