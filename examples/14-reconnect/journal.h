/* SPDX-License-Identifier: BSD-3-Clause */
/* The journal that the client of 14-reconnect writes to the server's file. */
#ifndef JOURNAL_H
#define JOURNAL_H 1

#include <stdint.h>

#define RECORDS 40

/* number is the record's index plus 1: an empty slot in the file has 0 */
struct record {
	uint64_t number;
	char body[248];
};

struct journal {
	struct record records[RECORDS];
};

#endif /* JOURNAL_H */
