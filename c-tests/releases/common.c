/* SPDX-License-Identifier: BSD-3-Clause */
/* The common part of target and initiator. */

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "program.h"

void
fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

void
expect_ok(int ret, const char *call, const char *file, int line)
{
	if (ret != 0)
		fail(file, line, "%s: %s (%d)", call, rpma_err_2str(ret), ret);
}

void
expect_event(struct rpma_conn *conn, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	EXPECT(event == expected, "the event is \"%s\" instead of \"%s\"", rpma_utils_conn_event_2str(event),
			rpma_utils_conn_event_2str(expected));
}

char *
pages(size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(ptr != MAP_FAILED, "no memory");
	return ptr;
}

static char
pattern(size_t i, unsigned seed)
{
	return (char)((i * 167 + (i >> 8) * 13 + seed * 101 + 7) & 0xff);
}

void
fill_pattern(char *ptr, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		ptr[i] = pattern(i, seed);
}

void
check_pattern(const char *ptr, size_t size, unsigned seed, const char *what)
{
	for (size_t i = 0; i < size; i++)
		EXPECT(ptr[i] == pattern(i, seed), "%s: byte %zu is wrong", what, i);
}

void
check_bytes(const void *ptr, size_t size, unsigned char value, const char *what)
{
	const unsigned char *bytes = ptr;

	for (size_t i = 0; i < size; i++)
		EXPECT(bytes[i] == value, "%s: byte %zu is %#x", what, i, bytes[i]);
}
