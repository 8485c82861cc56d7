/* SPDX-License-Identifier: BSD-3-Clause */
/* What the client of 14-reconnect writes into the server's file. */
#ifndef JOURNAL_H
#define JOURNAL_H 1

#include <stdint.h>

#define RECORDS 40

/* number is the record's index plus 1: an empty place in the file has 0 */
struct record {
	uint64_t number;
	char body[248];
};

struct journal {
	struct record records[RECORDS];
};

#endif /* JOURNAL_H */
