/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.h -- a TCP proxy that damages the streams that it forwards; seed and N determine the damage of its
 * Nth connection.
 */
#ifndef STRESS_PROXY_H
#define STRESS_PROXY_H 1

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum spoil {
	SPOIL_NOTHING, /* forwards all */
	SPOIL_SPLIT, /* in pieces of 1 to 64 bytes */
	SPOIL_DELAY, /* pauses of some milliseconds, anywhere */
	SPOIL_CUT, /* resets both connections at a byte of one direction */
	SPOIL_TRUNCATE, /* the stream ends at a byte, with FIN, and the other direction soon after */
	/* These change bytes: for connections with CRC. */
	SPOIL_FLIP, /* one bit */
	SPOIL_BURST, /* up to 32 bits in a row */
	SPOIL_DROP, /* some bytes are missing */
	SPOIL_REPEAT, /* some bytes are repeated */
	SPOIL_HANDSHAKE, /* one bit of the MPA Request or Reply, except for length and private data */
	SPOILS,
};

extern const char *const spoil_names[SPOILS];

/* The fault of the Nth connection; `changes` permits faults that change bytes. */
enum spoil spoil_of(uint64_t number, bool changes);

/*
 * Starts the proxy as a separate process, which forwards connections to `to`. It listens on a port of its
 * choice, which it stores in `port`. The number of a connection is the last 8 bytes of the private data of
 * its MPA Request.
 */
pid_t start_proxy(const char *to, char port[8], bool changes);

#endif /* STRESS_PROXY_H */
