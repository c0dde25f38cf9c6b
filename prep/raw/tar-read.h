/* SPDX-License-Identifier: Apache-2.0 */
/* tar-read.h - walks the members of a tar: ustar, pax, GNU's long names and old tars without a magic. The input may be
 * any bytes.
 *
 * A tar of pictures may come from anywhere, and one bad block must not make the other ten thousand pictures unusable.
 * So damage does not end the walk: after a header with a wrong checksum, the walk continues at the next block that is a
 * valid ustar header. An incomplete block at the end counts as damage, too.
 *
 * Rules: a tar ends at two empty blocks or at its last byte. If another header follows within TAR_TAIL_MAX bytes of the
 * end (tars that were joined as files), the bytes from there on are damage, and are not read: other readers stop at the
 * end, too. has_end is set only if an empty block is there: without one the writer did not finish, even if the last
 * member is complete. Links, folders, devices and unknown types are not reported as members. A sparse file is reported,
 * but cannot be read. Global pax headers are skipped. Only path and size of a pax header are used.
 *
 * Ownership: the caller owns the TarReader and the input's context; the name of a TarMember is valid until the next
 *            tar_next(). tar_reader_clear() frees the reader's memory.
 * Units:     bytes from the start of the tar.
 * Errors:    the input's; -ENOMEM.
 * Source:    POSIX.1-2017, pax, "pax Interchange Format" and "ustar Interchange Format"; GNU tar's manual, "Basic Tar
 *            Format".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum {
    TAR_NAMES_MAX = 1 << 20, /* bytes; a larger pax header or long name is damage */
    TAR_TAIL_MAX = 2 << 20,  /* bytes */
};

typedef struct TarInput {
    void *context;
    uint64_t n_bytes;
    /* Reads n_bytes at offset; the reader never requests bytes beyond the end of the input. */
    int (*read)(void *context, uint64_t offset, void *buffer, size_t n_bytes, Error *err);
} TarInput;

typedef enum TarFault { TAR_GOOD, TAR_SPARSE, TAR_TRUNCATED } TarFault;

typedef struct TarMember {
    const char *name;
    uint64_t offset, n_bytes; /* position and size of the file's contents */
    uint64_t n_there;         /* bytes of the contents that are in the tar, which may be cut */
    TarFault fault;           /* the contents can be read only if this is TAR_GOOD */
    bool after_damage;        /* the tar is damaged directly before this member */
} TarMember;

typedef struct TarReader {
    TarInput input;
    uint64_t at;
    /* Number of damaged places, and the offset of the first one. */
    uint64_t n_damaged, first_damage;
    bool has_end;          /* valid after the last member: the tar ends with an empty block */
    bool has_members_left; /* likewise: the first damage is a header behind the end */
    /* frame_bytes counts headers, padding and the bytes after the end; lost_bytes counts blocks that were skipped as
     * damaged. After the last member, these two and the members' n_there add up to the size of the tar. */
    uint64_t frame_bytes, lost_bytes;

    /* private to tar-read.c */
    char *name; /* name of the last member */
    char *long_name;
    bool has_size, sparse, lost;
    uint64_t size; /* size from a pax header */
} TarReader;

void tar_reader_init(TarReader *tar, const TarInput *input);
void tar_reader_clear(TarReader *tar);
/* 1: *ret is the next file. 0: there are no more files. */
int tar_next(TarReader *tar, TarMember *ret, Error *err);
/* Reads the whole contents of a member, whose fault must be TAR_GOOD. */
int tar_read(const TarReader *tar, const TarMember *member, void *buffer, Error *err);
