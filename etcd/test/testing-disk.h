/* SPDX-License-Identifier: Apache-2.0 */
/* testing-disk.h - a disk that stops answering under a program, without a disk and without root.
 *
 * Each sync of the program waits for a helper process (seccomp's user notification), which lets it go on. Stopped with
 * SIGSTOP the helper is a disk that hangs: the program's other threads run,
 * its sockets answer, nothing of it reaches stable storage. SIGCONT ends that.
 *
 * Ownership: that process dies with the program.
 * Units:     none.
 * Errors:    none: where the kernel has no user notification (before 5.5) the program has its disk.
 * Threads:   between fork() and exec(), in the child.
 */
#pragma once

#include <sys/types.h>

/* From here on each fsync and fdatasync of this process and its children asks first. Writes the pid
 * of the process that is asked, a pid_t, to report; nothing where it can't be had. */
void testing_disk_attach(int report);
