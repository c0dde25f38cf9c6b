/* SPDX-License-Identifier: Apache-2.0 */
/* message-id.h - the journal's message ids of the transitions that people search for and alert on.
 *
 * A transition never changes its id. journalctl MESSAGE_ID=... finds it, and journalctl -x explains
 * it with the text of systemd/sdtrain.catalog, which has exactly these ids.
 *
 * Ownership: none. Units: none.
 */
#pragma once

#define MESSAGE_LEADING "225a5ca5b5714826b03e4d5a6c5b7815"
#define MESSAGE_DEPOSED "931763af98424261ae81746d27c9bf46"
#define MESSAGE_WORLD "538507ae5238499bb9744a61698dee7d"
#define MESSAGE_PHASE "d627203ed70844e5935168695b0a1601"
#define MESSAGE_INCIDENT "314dfa19d2e54a9ebfdf742d278c90ac"
#define MESSAGE_RECOVERED "a0bb0892e86a400c84e69aa529bf84c2"
#define MESSAGE_NODE_JUDGED "1fdcf0d8396d4981ade87d642fd11ccd"
#define MESSAGE_REGISTERED "103662f342ff4f81a3f4f5ad218dac66"
#define MESSAGE_LEASE_LOST "ba2cae01a4b14be6b4cc739c91d97d58"
#define MESSAGE_STRANGER "05d06e28e3524887b7805958834fe301"
#define MESSAGE_FENCED "33559e43097644f9899476d68aeab32c"
#define MESSAGE_DRAINING "4ad0422d299846cc94bbcbc3f5b0720c"
#define MESSAGE_LEFT "578cb66bd54c47b7b0c0d61ae8dd9d19"
#define MESSAGE_RANK_STARTED "63e26b2e225e45e4b5ce203f52c1f894"
#define MESSAGE_RANK_ENDED "71e5197aff314c68823931bdf946ac5e"
#define MESSAGE_RANK_HANGS "f54995a9f8ba49c9baa9349be7435937"
#define MESSAGE_SLOT_LOST "d421e813f13a49039674c97cd5e7b6ce"
#define MESSAGE_CHECKPOINT "e75439a316ad4940afdb0378529594dc"
#define MESSAGE_STANDSTILL "8a5353a1def94a7ab4ab6a8c25019cbd"
#define MESSAGE_HISTORY "93c1799632974512ad8d87b2538f1deb"
