/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h -- the operations of the initiator, whose effects the target checks
 *
 * The target's region is a little more than one page: DATA is written, ATOMIC and OLD_ATOMIC are written
 * atomically if the initiator's release supports it, IMM is written with immediate data, SOURCE is read. All
 * other bytes stay zero. Two messages follow: the first with immediate data if the release supports it; for
 * the second, a release that supports it writes with immediate data. The target replies with a message.
 */
#ifndef RELEASES_PLAN_H
#define RELEASES_PLAN_H 1

#include "program.h"

#define REGION_SIZE 8192
#define DATA_AT 256
#define DATA_SIZE 1500
#define ATOMIC_AT 2048
#define OLD_ATOMIC_AT 2056
#define IMM_AT 3000
#define IMM_SIZE 700
#define SOURCE_AT 4096
#define SOURCE_SIZE 4096

#define MESSAGE_SIZE 100
#define FIRST_IMM 0x01020304u
#define SECOND_IMM 0xfffefdfcu

/* The seed of each pattern. */
enum { DATA_SEED = 1, IMM_SEED, SOURCE_SEED, FIRST_SEED, SECOND_SEED, ANSWER_SEED };

#define ATOMIC_TEXT "8 bytes!"
#define OLD_ATOMIC_TEXT "eight..."

/* The features of a release, by its number. */
static inline bool
has_write_atomic(int release)
{
	return release <= 13;
}

static inline bool
has_atomic_write(int release)
{
	return release >= 13;
}

static inline bool
has_imm(int release)
{
	return release >= 10;
}

/* The private data of both sides. The initiator has no descriptors to send. */
struct hello {
	unsigned char release;
	unsigned char mr_desc_size;
	unsigned char pcfg_desc_size;
	unsigned char descs[61];
};

#endif
