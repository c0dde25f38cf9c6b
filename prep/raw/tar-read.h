/* SPDX-License-Identifier: Apache-2.0 */
/* tar-read.h - walks the members of a tar of any bytes: ustar, pax, GNU's long names and old tars without a magic.
 *
 * A tar of pictures comes from somewhere else, and one bad block must not cost the other ten thousand pictures. So
 * damage ends nothing: where a header's checksum is wrong, the walk goes on at the next block that is a ustar header.
 * A part of a block at the end is damage, too.
 *
 * Rules: two empty blocks end a tar; so does its last byte, but only an empty block there is an end that a writer made:
 *        a tar without one was not finished, whatever its last member is. Links, folders, devices and unknown kinds are
 *        not members here. A sparse file is one that cannot be read. Global pax headers are passed over. In a pax
 *        header path and size count.
 *
 * Ownership: the caller owns the TarReader and what its input points to; a TarMember's name stays until the next
 *            tar_next(). tar_reader_clear() frees.
 * Units:     bytes from the start of the tar.
 * Errors:    the input's; -ENOMEM.
 * Threads:   one.
 * Source:    POSIX.1-2017, pax, "pax Interchange Format" and "ustar Interchange Format"; GNU tar's manual, "Basic Tar
 *            Format".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { TAR_NAMES_MAX = 1 << 20 }; /* bytes of a pax header or long name; a longer one is damage */

typedef struct TarInput {
    void *context;
    uint64_t n_bytes;
    /* Reads n_bytes at offset; never asked for bytes beyond the end. */
    int (*read)(void *context, uint64_t offset, void *buffer, size_t n_bytes, Error *err);
} TarInput;

typedef enum TarFault { TAR_GOOD, TAR_SPARSE, TAR_TRUNCATED } TarFault;

typedef struct TarMember {
    const char *name;
    uint64_t offset, n_bytes; /* of what the file holds */
    uint64_t n_there;         /* of these in the tar, which may end before */
    TarFault fault;           /* of another than TAR_GOOD nothing is to be read */
    bool after_damage;        /* what lay before it is lost */
} TarMember;

typedef struct TarReader {
    TarInput input;
    uint64_t at;
    uint64_t n_damaged,
        first_damage; /* places where the walk was lost, and the first one's offset */
    bool has_end;     /* once there are no more members: an empty block was the last one */
    /* Headers, what fills blocks and what is behind the end; and blocks that were passed over as damaged. In the end
     * they are all bytes of the tar but for the members' n_there. */
    uint64_t frame_bytes, lost_bytes;

    /* internal */
    char *name; /* of the last member */
    char *long_name;
    bool has_size, sparse, lost;
    uint64_t size; /* of a pax header */
} TarReader;

void tar_reader_init(TarReader *tar, const TarInput *input);
void tar_reader_clear(TarReader *tar);
/* 1: *ret is a file. 0: there are no more. */
int tar_next(TarReader *tar, TarMember *ret, Error *err);
/* Reads a member that has no fault, whole. */
int tar_read(const TarReader *tar, const TarMember *member, void *buffer, Error *err);
