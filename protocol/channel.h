/* channel.h - what a daemon and a trainer say to each other over a SOCK_SEQPACKET socketpair.
 *
 * One message is one packet: a JSON object of at most 64 KiB with "type". The trainer's end is
 * descriptor 3 (SDTRAIN_CHANNEL=3). An unknown type is skipped with a warning, so that versions can
 * mix.
 *
 *   daemon -> trainer   assign go alive checkpoint stop committed refused
 *   trainer -> daemon   hello rendezvous ready stage step saved error done found
 *
 * Ownership: strings inside a ChannelMessage are fixed buffers, except spec and text, which
 *            channel_receive() allocates and channel_message_clear() frees; senders borrow. What is
 *            cleared, and every packet, is wiped: one holds a secret.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EAGAIN nothing there (non-blocking receive); -EPIPE the other side is gone;
 *            -EBADMSG a packet that is not a message (the text says why); -EMSGSIZE too long.
 * Threads:   one sender and one receiver at a time per end; the two may be different threads.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/hash.h"
#include "protocol/train-stage.h"

enum {
    CHANNEL_FD = 3,
    CHANNEL_PACKET_MAX = 64 * 1024,
    CHANNEL_URI_MAX = 512,
    CHANNEL_ADDRESS_MAX = 128,
    CHANNEL_TEXT_MAX = 512,
    CHANNEL_SOURCES_MAX = 33 * 65,
    CHANNEL_SAVE_ERROR_MAX = 200,
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
    CHANNEL_SAVED, /* rank 0: manifest URI, hash, digest of step; answer with committed or refused
                    */
    CHANNEL_ERROR, /* why this process will exit, with its exit code */
    CHANNEL_DONE,  /* last step reached, or left on request; digest */
    CHANNEL_FOUND, /* rank 0, told to find: a checkpoint as in saved, the oldest first; after the last one the
                      answer is committed or refused */
    CHANNEL_TYPES,
} ChannelType;

/* Of one process since its start; a put's share of a flush is in put_sec. */
typedef struct ChannelStoreUse {
    int64_t puts, gets;
    double put_sec, get_sec;
} ChannelStoreUse;

typedef struct ChannelMessage {
    ChannelType type;
    int64_t generation; /* every message carries it, except hello */
    int64_t step; /* go: none; stage, step, saved, committed, refused, error, done: the step */

    /* assign */
    int rank, world_size;
    char job[64], node[64];
    char *spec;                       /* the job file's text */
    char resume_uri[CHANNEL_URI_MAX]; /* manifest; empty: start from step 0 */
    Hash resume_hash;
    int find; /* 0: no; 1, 2: look into checkpoint.uri first, as ResumeFind of cluster/records.h says */
    bool adopt; /* resume_uri is another job's (job start --resume): take state, not history */
    char takes_over
        [40]; /* id of the `job recover` that named resume_uri: the folder is taken over, once */
    char sources
        [CHANNEL_SOURCES_MAX]; /* what its data were when it was submitted; empty: not told */
    char submission[33]; /* of the job: 32 hex digits, another one whenever it is submitted anew */
    char bind_address[CHANNEL_ADDRESS_MAX]; /* this node's address for collectives */
    char secret[65]; /* of the world, 64 hexadecimal digits; empty: it has none */
    /* Empty: nobody fills or reads it. It stays, since trainers of 0.2.0 refuse an assign without it. */
    char numerics[1024];

    uint64_t alive_usec;               /* alive: time until SIGKILL unless re-armed */
    char address[CHANNEL_ADDRESS_MAX]; /* rendezvous, go */
    int pid;                           /* hello */

    TrainStage stage; /* stage, error */
    /* stage: the ranks wait for so long by now, for the data of that rank at least or, in
     * STAGE_SAVING, for a save; 0: they do not */
    uint64_t waited_usec;
    int waits_rank;
    double loss; /* step */
    double samples_per_sec;
    int64_t samples_seen;
    int64_t steps;        /* step: the last one of the job */
    double step_sec;      /* step: how long it took */
    double data_sec;      /* step: of that, waiting for data */
    int64_t failed_saves; /* step: since this process began */
    /* step: the newest save failed, and so did all since then; 0, "": it was good */
    uint64_t unsaved_since_usec;
    char save_error[CHANNEL_SAVE_ERROR_MAX]; /* why, for people; may be cut */
    /* step: so many steps' metrics are lost, between these steps; 0: none */
    int64_t metrics_lost, metrics_lost_first, metrics_lost_last;

    char uri[CHANNEL_URI_MAX]; /* saved, found: the manifest's */
    Hash hash;                 /* saved, found: the manifest's */
    Hash digest;               /* saved, found, done: of the training state */
    int64_t made_by;           /* found: the generation that wrote it */
    bool more;                 /* found: others follow */
    double write_sec;          /* saved: from the copy to the manifest */
    double blocked_sec;        /* saved: what of it training waited */
    int64_t saved_bytes;       /* saved: of all ranks */
    ChannelStoreUse store;     /* saved: of the checkpoints' store */

    int exit_code;               /* error */
    int unmet;                   /* error: 1 + the rank that joining did not meet; 0: none */
    char text[CHANNEL_TEXT_MAX]; /* error: for people; done: "finished" or "left" */
} ChannelMessage;

int channel_send(int fd, const ChannelMessage *message, Error *err);
/* ret must be zeroed or cleared before. */
int channel_receive(int fd, ChannelMessage *ret, Error *err);
/* The codec alone, for tests and the fuzzer. *ret is allocated. */
int channel_encode(const ChannelMessage *message, char **ret, size_t *ret_bytes, Error *err);
int channel_decode(const char *packet, size_t n_bytes, ChannelMessage *ret, Error *err);
void channel_message_clear(ChannelMessage *message);
const char *channel_type_name(ChannelType type);
