/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of 08-flush-by-message; every number is little-endian. */
#ifndef PROTOCOL_H
#define PROTOCOL_H 1

#include <endian.h>
#include <stdint.h>

/* client to server: make these bytes of the region durable; a length of 0 marks the last message */
struct flush_request {
	uint64_t offset;
	uint64_t length;
};

/* server to client: 0 on success, else an errno value; offset and length are echoed */
struct flush_answer {
	uint64_t offset;
	uint64_t length;
	uint64_t error;
};

#endif /* PROTOCOL_H */
