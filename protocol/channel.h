/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - what a daemon and a trainer say to each other over a SOCK_SEQPACKET socketpair.
 *
 * One message is one packet: a JSON object of at most 64 KiB with "type". The trainer's end is
 * descriptor 3 (SDTRAIN_CHANNEL=3). An unknown type is skipped with a warning, so that versions can
 * mix.
 *
 *   daemon -> trainer   assign go alive checkpoint stop committed refused
 *   trainer -> daemon   hello rendezvous ready stage step saved error done found
 *
 * Ownership: strings inside a ChannelMessage are fixed buffers, except assign.spec, which channel_receive()
 *            allocates and channel_message_clear() frees; senders borrow. Clearing wipes the message, and every
 *            packet's buffer is wiped: an assign holds a secret.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EAGAIN: no packet (non-blocking receive). -EPIPE: the other side is gone. -EBADMSG: the packet is no
 *            message; the text says why. -EMSGSIZE: too long.
 * Threads:   one sender and one receiver at a time per end; the two may be different threads.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "protocol/train-stage.h"

enum {
    CHANNEL_FD = 3,
    CHANNEL_PACKET_MAX = 64 * 1024,
    CHANNEL_URI_MAX = 512,
    CHANNEL_ADDRESS_MAX = 128,
    CHANNEL_TEXT_MAX = 512,
    CHANNEL_SOURCES_MAX = 33 * 129,
    CHANNEL_SAVE_ERROR_MAX = 200,
    CHANNEL_DIVERGING_MAX = 160,
};

/* How sdtraind hands its settings paths_read and paths_write to its ranks: JSON arrays of strings; unset: open. */
#define PATHS_READ_VARIABLE "SDTRAIN_PATHS_READ"
#define PATHS_WRITE_VARIABLE "SDTRAIN_PATHS_WRITE"

typedef enum ChannelType {
    /* daemon -> trainer */
    CHANNEL_ASSIGN,     /* job spec, generation, rank, world, resume manifest */
    CHANNEL_GO,         /* rendezvous address: join now */
    CHANNEL_ALIVE,      /* re-arms the dead-man timer for alive_usec */
    CHANNEL_CHECKPOINT, /* save after this step and go on */
    CHANNEL_STOP,       /* finish the step, save, exit 0 (to rank 0 only) */
    CHANNEL_COMMITTED,  /* the record of `step` is in etcd */
    CHANNEL_REFUSED,    /* the guard did not hold: this world is over */
    /* trainer -> daemon */
    CHANNEL_HELLO,      /* pid; the process runs */
    CHANNEL_RENDEZVOUS, /* rank 0: address of its rendezvous store */
    CHANNEL_READY,      /* state restored; waits for go */
    CHANNEL_STAGE,      /* step and stage, before each collective; coalesced to 20/s */
    CHANNEL_STEP,       /* rank 0, each step: loss, samples/s */
    CHANNEL_SAVED,      /* rank 0: a checkpoint is written; answered by committed or refused */
    CHANNEL_ERROR,      /* why this process will exit, with its exit code */
    CHANNEL_DONE,       /* last step reached, or left on request; digest */
    CHANNEL_FOUND, /* rank 0, told to find: one checkpoint, the oldest first; the last is answered as saved is */
    CHANNEL_TYPES,
} ChannelType;

/* The requests of one process to its store since it started. */
typedef struct ChannelStoreUse {
    int64_t puts, gets;
    double put_sec, get_sec; /* waits for a flush count as put_sec */
} ChannelStoreUse;

/* assign: what a rank trains, and as which rank of which world. */
typedef struct ChannelAssign {
    int rank, world_size;
    char job[64], node[64];           /* names */
    char *spec;                       /* the job file's text */
    char resume_uri[CHANNEL_URI_MAX]; /* manifest to restore; empty: start at step 0 */
    Hash resume_hash;                 /* of that manifest */
    int find; /* ResumeFind of cluster/records.h as a number: whether to look into checkpoint.uri first */
    bool adopt; /* resume_uri is another job's (job start --resume): take state, not history */
    char takes_over[40]; /* id of the `job recover` that takes the checkpoint folder over, once */
    /* Hashes of the data as they were submitted; empty: not told. */
    char sources[CHANNEL_SOURCES_MAX];
    char submission[33]; /* of the job: 32 hex digits, drawn anew with each submission */
    char gpu
        [24]; /* PCI address of the slot's GPU, "0000:3b:00"; empty: the slot has none, or it is not told */
    char bind_address[CHANNEL_ADDRESS_MAX]; /* this node's address for collectives */
    char secret[65]; /* of the world: 64 hex digits; empty: the world has none */
    /* Empty: nobody fills or reads it. It stays, since trainers of 0.2.0 refuse an assign without it. */
    char numerics[1024];
    uint64_t startup_usec; /* in which the daemon expects the rank to be ready; 0: not told */
    uint64_t alive_usec;   /* time until SIGKILL unless `alive` re-arms it */
} ChannelAssign;

/* A message: what every type has, and what only some types have. */
typedef struct ChannelMessage {
    ChannelType type;
    int64_t generation; /* all but hello */
    /* checkpoint, committed, refused, ready, stage, step, saved, error, done, found: the step it is about */
    int64_t step;

    union {
        ChannelAssign assign;              /* assign; the largest, so {0} clears all */
        uint64_t alive_usec;               /* alive: time until SIGKILL unless re-armed */
        char address[CHANNEL_ADDRESS_MAX]; /* rendezvous, go: of rank 0's rendezvous store */
        int pid;                           /* hello: the trainer's */

        struct {              /* stage, error */
            TrainStage stage; /* where the rank is, or was */
            /* stage: how long the ranks have waited, for the data of waits_rank at least or, in STAGE_SAVING, for a
             * save; 0: they do not wait */
            uint64_t waited_usec;
            int waits_rank;
            int exit_code; /* error */
            int unmet;     /* error: 1 + the rank that this one could not join with; 0: none */
            char text[CHANNEL_TEXT_MAX]; /* error: for people */
        };

        struct { /* step */
            double loss;
            double samples_per_sec;
            int64_t samples_seen; /* of the job, since step 0 */
            double grad_norm;     /* before it is clipped */
            double lr;            /* learning rate of the step */
            int64_t steps;        /* the job's last step */
            double step_sec;      /* how long the step took */
            double data_sec;      /* share of step_sec that was spent waiting for data */
            double
                saving_sec; /* how long rank 0 has waited for saves since this world's first step */
            int64_t failed_saves; /* since this process began */
            /* CLOCK_BOOTTIME since when every save has failed; 0: the newest was good. */
            uint64_t unsaved_since_usec;
            /* Why the newest save failed, for people; may be cut. */
            char save_error[CHANNEL_SAVE_ERROR_MAX];
            /* About how many bytes the next save writes, 0: not known; and how many its store has. */
            int64_t save_next_bytes, save_free_bytes;
            int64_t diverging_since; /* the step from which on training diverges; 0: it does not */
            /* Which value is too large, for people. */
            char diverging[CHANNEL_DIVERGING_MAX];
            int64_t metrics_lost; /* steps whose metrics are lost; 0: none */
            int64_t metrics_lost_first,
                metrics_lost_last; /* the first and the last of these steps */
        };

        struct {                         /* saved, found; done has its digest and end */
            char uri[CHANNEL_URI_MAX];   /* of the manifest */
            Hash hash;                   /* of the manifest */
            Hash digest;                 /* of the training state */
            char end[CHANNEL_TEXT_MAX];  /* done: "finished" or "left" */
            int64_t made_by;             /* found: generation that wrote the checkpoint */
            char plans[HASH_TEXT_BYTES]; /* hash of the plan set; empty: none */
            bool more;                   /* found: another found follows */
            double write_sec;            /* saved: from the copy to the manifest */
            double blocked_sec;          /* saved: share of write_sec in which training waited */
            int64_t saved_bytes;         /* saved: of all ranks */
            ChannelStoreUse store;       /* saved: of the checkpoints' store */
        };
    };
} ChannelMessage;

/* Only these two touch the socket (channel-socket.c). A simulator defines them itself and hands structs over; the
 * descriptor is then whatever its process_start() gives. */
int channel_send(int fd, const ChannelMessage *message, Error *err);
/* ret must be zeroed or cleared before. */
int channel_receive(int fd, ChannelMessage *ret, Error *err);
/* The codec by itself, for tests and the fuzzer. *ret is allocated. */
int channel_encode(const ChannelMessage *message, char **ret, size_t *ret_bytes, Error *err);
int channel_decode(const char *packet, size_t n_bytes, ChannelMessage *ret, Error *err);
void channel_message_clear(ChannelMessage *message);
const char *channel_type_name(ChannelType type);
