/* SPDX-License-Identifier: BSD-3-Clause */

/* Descriptors: their encoding, and the decoding of valid and invalid ones. */

#include "observe.h"

static const uint64_t addresses[] = {1, 0x1000, 0x12345678, 0x7fffdeadbeef, 0x123456789abcdef0, UINT64_MAX - 0x1000};
static const uint64_t lengths[] = {1, 8, 0x1000, UINT32_MAX, (uint64_t)UINT32_MAX + 1, (uint64_t)1 << 63, UINT64_MAX};
static const int usages[] = {1, 2, 4, 8, 0x10, 0x20, 0x30, 0x40, 0x80, 0x5a, 0xff};
#define N(a) (sizeof(a) / sizeof((a)[0]))

/* Local regions as the other side receives them. */
static void local(void)
{
	char name[96];

	struct rpma_peer *peer = fx_peer();
	for (size_t i = 0; i < N(addresses); i++) {
		for (size_t j = 0; j < N(lengths); j++) {
			int usage = usages[(i * N(lengths) + j) % N(usages)];
			void *ptr = (void *)(uintptr_t)addresses[i], *got = UNTOUCHED;
			struct rpma_mr_local *mr = UNTOUCHED;
			unsigned char desc[26];
			size_t size = 77;
			memset(desc, 0xee, sizeof(desc));
			snprintf(name, sizeof(name), "0x%zx %zu 0x%x", addresses[i], lengths[j], (unsigned)usage);
			CALL_AS(name, rpma_mr_reg(peer, ptr, lengths[j], usage, &mr), "%s", obj(mr));
			if (!live(mr))
				continue;
			/* not aligned */
			CALL(rpma_mr_get_descriptor(mr, desc + 1), "%s", hex(desc, sizeof(desc)));
			CALL(rpma_mr_get_descriptor_size(mr, &size), "%zu", size);
			CALL(rpma_mr_get_ptr(mr, &got), "%d", got == ptr);
			CALL(rpma_mr_get_size(mr, &size), "%zu", size);
			fx_mr_dereg(&mr);
		}
	}
	fx_peer_delete(&peer);
}

static uint64_t number(const unsigned char *bytes)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | bytes[i];
	return n;
}

/* Whether the region would exceed the address space. */
static bool past_the_end(const unsigned char *desc, size_t size)
{
	if (size < 21 || desc[20] == 0 || number(desc + 8) == 0)
		return false;
	return number(desc) + (number(desc + 8) - 1) < number(desc);
}

/* The properties of a region from a descriptor and, by a read, its address. */
static void take(const char *plain, const unsigned char *desc, size_t size)
{
	struct rpma_mr_remote *mr = UNTOUCHED;
	size_t length = 77;
	int type = 77;
	char what[128], name[96];

	snprintf(name, sizeof(name), "%s%s", past_the_end(desc, size) ? "past the end: " : "", plain);
	CALL_AS(name, rpma_mr_remote_from_descriptor(desc, size, &mr), "%s", obj(mr));
	if (!live(mr))
		return;
	snprintf(what, sizeof(what), "%s: size", name);
	CALL_AS(what, rpma_mr_remote_get_size(mr, &length), "%zu", length);
	snprintf(what, sizeof(what), "%s: flush type", name);
	CALL_AS(what, rpma_mr_remote_get_flush_type(mr, &type), "%d", type);
	snprintf(what, sizeof(what), "%s: read", name);
	CALL_AS(what, rpma_read(d_conn, d_mr, 0, mr, 8, 16, ALWAYS, CONTEXT), "posted");
	snprintf(what, sizeof(what), "%s: visible", name);
	CALL_AS(what, rpma_flush(d_conn, mr, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT), "posted");
	snprintf(what, sizeof(what), "%s: persistent", name);
	CALL_AS(what, rpma_flush(d_conn, mr, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, CONTEXT), "posted");
	snprintf(what, sizeof(what), "%s: delete", name);
	CALL_AS(what, rpma_mr_remote_delete(&mr), "%s", obj(mr));
}

static void remote_usages(void)
{
	unsigned char desc[21];
	char name[64];

	data_begin();
	for (int usage = 0; usage < 256; usage++) {
		fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, (uint8_t)usage);
		snprintf(name, sizeof(name), "usage 0x%02x", (unsigned)usage);
		take(name, desc, sizeof(desc));
	}
	data_end();
}

static void remote_ranges(void)
{
	static const uint64_t more[] = {0, 1, 8, 0x1000, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX};
	unsigned char desc[21];
	char name[64];

	data_begin();
	for (size_t i = 0; i < N(more); i++) {
		for (size_t j = 0; j < N(more); j++) {
			fx_descriptor(desc, more[i], more[j], (uint32_t)(i * 0x01010101), 0x35);
			snprintf(name, sizeof(name), "0x%zx and 0x%zx", more[i], more[j]);
			take(name, desc, sizeof(desc));
		}
	}
	data_end();
}

static void remote_sizes(void)
{
	unsigned char desc[64];
	char name[64];

	data_begin();
	memset(desc, 0x11, sizeof(desc));
	for (size_t size = 0; size <= sizeof(desc); size++) {
		snprintf(name, sizeof(name), "%zu bytes", size);
		take(name, desc, size);
	}
	data_end();
}

/* Random bytes. Every second address is below 2^62, where most descriptors are valid. */
static void remote_random(void)
{
	unsigned char desc[24];
	char name[64];

	data_begin();
	seed(3);
	for (int i = 0; i < 200; i++) {
		for (size_t b = 0; b < sizeof(desc); b++)
			desc[b] = (unsigned char)(next_random() >> 32);
		if (i % 2) {
			desc[7] &= 0x3f;
			desc[15] &= 0x3f;
		}
		size_t size = i % 10 == 9 ? (size_t)(next_random() % 21) : 21 + (size_t)i % 4;
		snprintf(name, sizeof(name), "random %03d", i);
		take(name, desc, size);
	}
	data_end();
}

/* The other side uses a region by its descriptor. */
static void round_trip(void)
{
	unsigned char desc[21];
	char name[64];

	data_begin();
	for (int usage = 1; usage < 256; usage++) {
		struct rpma_mr_local *mr = fx_mr(d_peer, usage);
		rpma_mr_get_descriptor(mr, desc);
		snprintf(name, sizeof(name), "round trip 0x%02x", (unsigned)usage);
		take(name, desc, sizeof(desc));
		fx_mr_dereg(&mr);
	}
	data_end();
}

static void peer_bytes(void)
{
	char name[64];

	for (int i = 0; i < 256; i++) {
		unsigned char in[3] = {(unsigned char)i, 0xff, 0xff}, out[3] = {0xee, 0xee, 0xee};
		struct rpma_peer_cfg *cfg = UNTOUCHED;
		bool direct = false;
		snprintf(name, sizeof(name), "byte 0x%02x", (unsigned)i);
		CALL_AS(name, rpma_peer_cfg_from_descriptor(in, 1 + (size_t)i % 3, &cfg), "%s", obj(cfg));
		snprintf(name, sizeof(name), "byte 0x%02x: direct write", (unsigned)i);
		CALL_AS(name, rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct), "%d", direct);
		snprintf(name, sizeof(name), "byte 0x%02x: again", (unsigned)i);
		CALL_AS(name, rpma_peer_cfg_get_descriptor(cfg, out), "%s", hex(out, sizeof(out)));
		rpma_peer_cfg_delete(&cfg);
	}
}

/* A peer descriptor permits flush to persistence; another one forbids it again. */
static void peer_applied(void)
{
	char name[64];

	data_begin();
	struct rpma_mr_remote *mr = fx_remote(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	for (int i = 0; i < 4; i++) {
		unsigned char byte = (unsigned char)(i % 2 ? i : 0);
		struct rpma_peer_cfg *cfg = NULL;
		rpma_peer_cfg_from_descriptor(&byte, 1, &cfg);
		snprintf(name, sizeof(name), "apply %d", i);
		CALL_AS(name, rpma_conn_apply_remote_peer_cfg(d_conn, cfg), "applied %u", byte);
		snprintf(name, sizeof(name), "flush %d", i);
		CALL_AS(name, rpma_flush(d_conn, mr, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, CONTEXT), "posted");
		rpma_peer_cfg_delete(&cfg);
	}
	fx_remote_delete(&mr);
	data_end();
}

void observe_descriptors(void)
{
	scenario(NULL, local, "descriptors of local regions");
	scenario(NULL, remote_usages, "descriptors with every usage");
	scenario(NULL, remote_ranges, "descriptors of ranges");
	scenario(NULL, remote_sizes, "descriptors of other sizes");
	scenario(NULL, remote_random, "descriptors of random bytes");
	scenario(NULL, round_trip, "descriptors, there and back");
	scenario(NULL, peer_bytes, "peer descriptors");
	scenario(NULL, peer_applied, "peer descriptors, applied");
}
