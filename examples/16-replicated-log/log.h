/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.h -- the write-ahead log of 16-replicated-log: records one after the other, the same bytes at the
 * primary and at the replica. Nothing but the records says where the log ends: a record is valid if its
 * checksum, which continues that of the record before it, is right. A torn record, and what is left of an
 * earlier log behind the end, is therefore never taken for a part of it.
 */
#ifndef LOG_H
#define LOG_H 1

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOG_SIZE (1 << 20)
#define RECORDS 600

struct record {
	uint32_t checksum; /* of all that follows, continued from the checksum of the record before */
	uint32_t length; /* of the body; a record begins at a multiple of 8 bytes */
	uint64_t number; /* from 1 */
	char body[];
};

/* A position in the log between two records. It is sent as it is: both sides have the same byte order. */
struct position {
	uint64_t number; /* of the last record before it */
	uint32_t offset;
	uint32_t checksum; /* of that record */
};

/* CRC-32C, continued from another one */
static inline uint32_t
log_checksum(uint32_t crc, const void *data, size_t size)
{
	const unsigned char *p = data;

	crc = ~crc;
	while (size-- > 0) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0x82f63b78 & -(crc & 1));
	}
	return ~crc;
}

static inline size_t
log_record_size(size_t length)
{
	return (sizeof(struct record) + length + 7) & ~(size_t)7;
}

/* Appends a record. 0 if there is no room for it. */
static inline int
log_append(char *log, struct position *end, const void *body, size_t length)
{
	struct record *record = (struct record *)(log + end->offset);
	size_t size = log_record_size(length);

	if (size > LOG_SIZE - end->offset)
		return 0;
	memset(record, 0, size);
	record->length = (uint32_t)length;
	record->number = ++end->number;
	memcpy(record->body, body, length);
	end->checksum = log_checksum(end->checksum, &record->length, size - sizeof(record->checksum));
	record->checksum = end->checksum;
	end->offset += (uint32_t)size;
	return 1;
}

/* Passes the record at a position. 0 if there is no valid one. */
static inline int
log_next(const char *log, struct position *at)
{
	const struct record *record = (const struct record *)(log + at->offset);
	size_t left = LOG_SIZE - at->offset;
	size_t size;
	uint32_t checksum;

	if (left < sizeof(*record) || record->number != at->number + 1 || record->length > left)
		return 0;
	size = log_record_size(record->length);
	if (size > left)
		return 0;
	checksum = log_checksum(at->checksum, &record->length, size - sizeof(record->checksum));
	if (record->checksum != checksum)
		return 0;
	*at = (struct position){record->number, at->offset + (uint32_t)size, checksum};
	return 1;
}

/* The end of the log. */
static inline struct position
log_recover(const char *log)
{
	struct position end = {0, 0, 0};

	while (log_next(log, &end))
		;
	return end;
}

/* Whether the log passes this position: then it begins with the same records as the log that ends there. */
static inline int
log_has(const char *log, const struct position *there)
{
	struct position at = {0, 0, 0};

	while (at.offset < there->offset && log_next(log, &at))
		;
	return at.offset == there->offset && at.checksum == there->checksum;
}

#endif /* LOG_H */
