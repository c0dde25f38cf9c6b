/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ranks.c - see testing-ranks.h. */
#include "trainer/test/testing-ranks.h"

#include "base/cleanup.h"
#include "base/test/testing.h"
#include "data/dataset-look.h"
#include "trainer/test/testing-job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PATIENCE_MSEC = 60000 };

Rank ranks[RANKS_MAX];
const char *ranks_gpu = "";
int64_t ranks_steps = 12;
const char *ranks_submission = "";
uint64_t ranks_startup_usec;
bool ranks_adopt;

static char sources[JOB_SOURCES_MAX]; /* facts about the data, as `job start` sends them */

void ranks_look_at_data(const char *text)
{
    Error err = ERROR_INIT;
    DatasetLook look;
    Job *job = testing_job_parse(text);
    if (dataset_look(job, &look, &err) < 0)
        fail_msg("%s", err.text);
    (void)dataset_sources_format(&look.sources, sources);
    job_free(job);
}

void rank_start(Rank *rank, const char *fault)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const char *bin = getenv("SDTRAIN_BIN");
    assert_non_null(bin);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/sdtrainer", bin);
    fflush(NULL);
    *rank = (Rank){.fd = pair[0], .pid = fork()};
    assert_true(rank->pid >= 0);
    if (rank->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(pair[1], CHANNEL_FD) < 0 || setenv("SDTRAIN_CHANNEL", "3", 1) < 0 ||
            (fault && setenv("SDTRAIN_FAULT", fault, 1) < 0))
            _exit(126);
        /* if the socket is descriptor 3 already, execl() would otherwise close it */
        (void)fcntl(CHANNEL_FD, F_SETFD, 0);
        (void)execl(path, path, "run", (char *)NULL);
        _exit(127);
    }
    (void)fd_close(pair[1]);
}

int rank_end(Rank *rank)
{
    int status;
    assert_int_equal(waitpid(rank->pid, &status, 0), rank->pid);
    rank->pid = 0;
    rank->fd = fd_close(rank->fd);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int ranks_end(void **unused)
{
    (void)unused;
    for (int i = 0; i < RANKS_MAX; i++)
        if (ranks[i].pid > 0) {
            (void)kill(ranks[i].pid, SIGKILL);
            (void)rank_end(&ranks[i]);
        }
    return 0;
}

void rank_say(const Rank *rank, ChannelMessage m)
{
    Error err = ERROR_INIT;
    if (channel_send(rank->fd, &m, &err) < 0)
        fail_msg("%s", err.text);
}

ChannelMessage rank_receive_any(Rank *rank)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {0};
    struct pollfd p = {.fd = rank->fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MSEC) != 1)
        fail_msg("process %d says nothing more after step %lld", (int)rank->pid,
                 (long long)rank->step);
    if (channel_receive(rank->fd, &m, &err) < 0)
        fail_msg("%s", err.text);
    if (m.type == CHANNEL_STEP) {
        assert_int_equal(m.step, rank->step + 1);
        assert_int_equal(m.steps, ranks_steps);
        assert_int_equal(m.samples_seen, 4 * m.step);
        rank->step = m.step;
        rank->told = m;
    }
    if (m.type == CHANNEL_SAVED)
        rank->saved = m;
    if (m.type == CHANNEL_ERROR)
        rank->error = m;
    return m;
}

ChannelMessage rank_hear(Rank *rank)
{
    ChannelMessage m;
    do
        m = rank_receive_any(rank);
    while (m.type == CHANNEL_STEP || m.type == CHANNEL_STAGE);
    return m;
}

ChannelMessage rank_expect(Rank *rank, ChannelType type)
{
    ChannelMessage m = rank_hear(rank);
    if (m.type != type)
        fail_msg("%s instead of %s: %s", channel_type_name(m.type), channel_type_name(type),
                 m.type == CHANNEL_ERROR ? m.text : "");
    return m;
}

void rank_assign(Rank *rank, const char *text, int64_t generation, int number, int size,
                 const ChannelMessage *resume)
{
    ChannelMessage hello = rank_expect(rank, CHANNEL_HELLO);
    assert_int_equal(hello.pid, rank->pid);
    ChannelMessage m = {.type = CHANNEL_ASSIGN,
                        .generation = generation,
                        .assign.rank = number,
                        .assign.world_size = size,
                        .assign.job = "testing",
                        .assign.spec = (char *)text,
                        .assign.bind_address = "127.0.0.1"};
    (void)snprintf(m.assign.sources, sizeof(m.assign.sources), "%s", sources);
    (void)snprintf(m.assign.gpu, sizeof(m.assign.gpu), "%s", ranks_gpu);
    (void)snprintf(m.assign.submission, sizeof(m.assign.submission), "%s", ranks_submission);
    m.assign.startup_usec = ranks_startup_usec;
    m.assign.adopt = resume && ranks_adopt;
    if (resume) {
        (void)snprintf(m.assign.resume_uri, sizeof(m.assign.resume_uri), "%s", resume->uri);
        m.assign.resume_hash = resume->hash;
        m.assign.resume_step = resume->step;
    }
    rank_say(rank, m);
    rank->step = resume ? resume->step : 0;
}

void rank_commit(Rank *rank, int64_t generation)
{
    rank_say(rank, (ChannelMessage){.type = CHANNEL_COMMITTED,
                                    .generation = generation,
                                    .step = rank->saved.step});
}

/* ---- a world's life ---- */

void ranks_begin(RanksLife *life, const char *text, int of, const char *fault)
{
    for (int i = 0; i < life->size; i++)
        rank_start(&ranks[i], i == of ? fault : NULL);
    for (int i = 0; i < life->size; i++)
        rank_assign(&ranks[i], text, life->generation, i, life->size,
                    life->saved.type == CHANNEL_SAVED ? &life->saved : NULL);
    ChannelMessage go = {.type = CHANNEL_GO, .generation = life->generation};
    if (life->size > 1) {
        const ChannelMessage rendezvous = rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
        memcpy(go.address, rendezvous.address, sizeof(go.address));
    }
    for (int i = 0; i < life->size; i++)
        (void)rank_expect(&ranks[i], CHANNEL_READY);
    for (int i = 0; i < life->size; i++)
        rank_say(&ranks[i], go);
}

bool rank_is_gone(const Rank *rank)
{
    char byte;
    return recv(rank->fd, &byte, sizeof(byte), MSG_PEEK) <= 0;
}

static void serve(RanksLife *life, int number)
{
    Rank *rank = &ranks[number];
    if (rank_is_gone(rank)) {
        life->lost = true;
        return;
    }
    const ChannelMessage m = rank_receive_any(rank);
    switch (m.type) {
    case CHANNEL_SAVED:
        life->saved = m;
        rank_commit(rank, life->generation);
        break;
    case CHANNEL_DONE:
        assert_string_equal(m.end, "finished");
        assert_int_equal(m.step, ranks_steps);
        if (life->n_done > 0 && !hash_equal(m.digest, life->digest))
            fail_msg("two ranks have two digests");
        life->digest = m.digest;
        life->done[number] = true;
        life->n_done++;
        break;
    case CHANNEL_ERROR: /* sent by a peer of a rank that was killed */
        if (m.exit_code != EXIT_PEER_LOST)
            fail_msg("rank %d: %s", number, m.text);
        life->lost = true;
        break;
    default:
        break;
    }
}

void ranks_live(RanksLife *life)
{
    while (!life->lost && life->n_done < life->size) {
        struct pollfd fds[RANKS_MAX];
        for (int i = 0; i < life->size; i++)
            fds[i] = (struct pollfd){.fd = life->done[i] ? -1 : ranks[i].fd, .events = POLLIN};
        if (poll(fds, (nfds_t)life->size, 2 * PATIENCE_MSEC) < 1)
            fail_msg("nobody says anything after step %d", (int)ranks[0].step);
        for (int i = 0; i < life->size && !life->lost; i++)
            if (fds[i].revents)
                serve(life, i);
    }
}
