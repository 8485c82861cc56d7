/* SPDX-License-Identifier: BSD-3-Clause */

/* Strings, configurations, access flags. */

#include <limits.h>

#include "observe.h"

static void strings(void)
{
	char name[32];

	for (int i = -20; i <= 30; i++) {
		snprintf(name, sizeof(name), "rpma_err_2str %d", i);
		record(name, "%s", rpma_err_2str(i));
		snprintf(name, sizeof(name), "rpma_utils_conn_event_2str %d", i);
		record(name, "%s", rpma_utils_conn_event_2str((enum rpma_conn_event)i));
	}
	for (int i = RPMA_E_UNKNOWN + 20; i >= RPMA_E_UNKNOWN - 20; i--) {
		snprintf(name, sizeof(name), "rpma_err_2str %d", i);
		record(name, "%s", rpma_err_2str(i));
	}
	record("rpma_err_2str INT_MIN", "%s", rpma_err_2str(INT_MIN));
	record("rpma_err_2str INT_MAX", "%s", rpma_err_2str(INT_MAX));
	record("rpma_utils_conn_event_2str INT_MAX", "%s", rpma_utils_conn_event_2str((enum rpma_conn_event)INT_MAX));
}

static const uint32_t sizes[] = {0, 1, 2, 9, 10, 11, 4096, 65535, 65536, INT_MAX - 1u, INT_MAX, INT_MAX + 1u, UINT32_MAX};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void show_conn_cfg(struct rpma_conn_cfg *cfg)
{
	struct rpma_srq *srq = UNTOUCHED;
	bool shared = false;
	uint32_t n = 0;
	int timeout = 0;

	CALL(rpma_conn_cfg_get_timeout(cfg, &timeout), "%d", timeout);
	CALL(rpma_conn_cfg_get_cq_size(cfg, &n), "%u", n);
	CALL(rpma_conn_cfg_get_rcq_size(cfg, &n), "%u", n);
	CALL(rpma_conn_cfg_get_sq_size(cfg, &n), "%u", n);
	CALL(rpma_conn_cfg_get_rq_size(cfg, &n), "%u", n);
	CALL(rpma_conn_cfg_get_compl_channel(cfg, &shared), "%d", shared);
	CALL(rpma_conn_cfg_get_srq(cfg, &srq), "%s", obj(srq));
}

static void conn_cfg(void)
{
	static const int timeouts[] = {0, 1, 999, 1000, 1001, INT_MAX, -1, INT_MIN};
	struct rpma_conn_cfg *cfg = UNTOUCHED;

	CALL(rpma_conn_cfg_new(&cfg), "%s", obj(cfg));
	show_conn_cfg(cfg);
	for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
		CALL(rpma_conn_cfg_set_timeout(cfg, timeouts[i]), "set %d", timeouts[i]);
		show_conn_cfg(cfg);
	}
	for (int i = 0; i < SIZES; i++) {
		/* different values, so that confused fields are detected */
		CALL(rpma_conn_cfg_set_cq_size(cfg, sizes[i]), "set");
		CALL(rpma_conn_cfg_set_rcq_size(cfg, sizes[(i + 3) % SIZES]), "set");
		CALL(rpma_conn_cfg_set_sq_size(cfg, sizes[(i + 5) % SIZES]), "set");
		CALL(rpma_conn_cfg_set_rq_size(cfg, sizes[(i + 7) % SIZES]), "set");
		CALL(rpma_conn_cfg_set_compl_channel(cfg, i % 2), "set");
		show_conn_cfg(cfg);
	}
	CALL(rpma_conn_cfg_delete(&cfg), "%s", obj(cfg));
	CALL(rpma_conn_cfg_delete(&cfg), "%s", obj(cfg));
}

static void srq_cfg(void)
{
	struct rpma_srq_cfg *cfg = UNTOUCHED;
	uint32_t n = 77;

	CALL(rpma_srq_cfg_new(&cfg), "%s", obj(cfg));
	CALL(rpma_srq_cfg_get_rq_size(cfg, &n), "%u", n);
	CALL(rpma_srq_cfg_get_rcq_size(cfg, &n), "%u", n);
	for (int i = 0; i < SIZES; i++) {
		CALL(rpma_srq_cfg_set_rq_size(cfg, sizes[i]), "set");
		CALL(rpma_srq_cfg_set_rcq_size(cfg, sizes[(i + 3) % SIZES]), "set");
		CALL(rpma_srq_cfg_get_rq_size(cfg, &n), "%u", n);
		CALL(rpma_srq_cfg_get_rcq_size(cfg, &n), "%u", n);
	}
	CALL(rpma_srq_cfg_delete(&cfg), "%s", obj(cfg));
	CALL(rpma_srq_cfg_delete(&cfg), "%s", obj(cfg));
}

/* The sizes and timeouts that the provider receives. */
static void sizes_used(void)
{
	struct rpma_peer *peer = fx_peer();

	for (int i = 0; i < SIZES; i++) {
		struct rpma_conn_cfg *cfg = fx_cfg(sizes[i], sizes[(i + 3) % SIZES], i % 2, NULL);
		struct rpma_conn_req *req = UNTOUCHED;
		struct rpma_srq_cfg *scfg = NULL;
		struct rpma_srq *srq = UNTOUCHED;
		rpma_conn_cfg_set_sq_size(cfg, sizes[(i + 5) % SIZES]);
		rpma_conn_cfg_set_rq_size(cfg, sizes[(i + 7) % SIZES]);
		rpma_conn_cfg_set_timeout(cfg, (int)(sizes[i] & INT_MAX));
		CALL(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), "%s", obj(req));
		CALL(rpma_conn_req_delete(&req), "%s", obj(req));
		CALL(rpma_conn_cfg_delete(&cfg), "%s", obj(cfg));
		rpma_srq_cfg_new(&scfg);
		rpma_srq_cfg_set_rq_size(scfg, sizes[i]);
		rpma_srq_cfg_set_rcq_size(scfg, sizes[(i + 3) % SIZES]);
		CALL(rpma_srq_new(peer, scfg, &srq), "%s", obj(srq));
		CALL(rpma_srq_delete(&srq), "%s", obj(srq));
		rpma_srq_cfg_delete(&scfg);
	}
	fx_peer_delete(&peer);
}

static void peer_cfg(void)
{
	struct rpma_peer_cfg *cfg = UNTOUCHED;
	bool direct = true;
	unsigned char desc[4];
	size_t size = 99;

	CALL(rpma_peer_cfg_new(&cfg), "%s", obj(cfg));
	for (int i = 0; i < 4; i++) {
		memset(desc, 0xee, sizeof(desc));
		CALL(rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct), "%d", direct);
		CALL(rpma_peer_cfg_get_descriptor(cfg, desc), "%s", hex(desc, sizeof(desc)));
		CALL(rpma_peer_cfg_get_descriptor_size(cfg, &size), "%zu", size);
		CALL(rpma_peer_cfg_set_direct_write_to_pmem(cfg, i != 1), "set %d", i != 1);
	}
	CALL(rpma_peer_cfg_delete(&cfg), "%s", obj(cfg));
	CALL(rpma_peer_cfg_delete(&cfg), "%s", obj(cfg));
}

/* `given` is the transport. */
static void access_flags(void)
{
	char name[32];

	mock_transport(*(const enum ibv_transport_type *)given);
	struct rpma_peer *peer = fx_peer();
	for (int usage = -1; usage <= 0x101; usage++) {
		struct rpma_mr_local *mr = UNTOUCHED;
		unsigned char desc[24];
		memset(desc, 0xee, sizeof(desc));
		snprintf(name, sizeof(name), "usage 0x%x", (unsigned)usage);
		CALL_AS(name, rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, usage, &mr), "%s", obj(mr));
		if (!live(mr))
			continue;
		snprintf(name, sizeof(name), "descriptor 0x%x", (unsigned)usage);
		CALL_AS(name, rpma_mr_get_descriptor(mr, desc), "%s", hex(desc, sizeof(desc)));
		fx_mr_dereg(&mr);
	}
	fx_peer_delete(&peer);
}

void observe_values(void)
{
	static const enum ibv_transport_type ib = IBV_TRANSPORT_IB, iwarp = IBV_TRANSPORT_IWARP, usnic = IBV_TRANSPORT_USNIC,
		unknown = IBV_TRANSPORT_UNKNOWN;

	scenario(NULL, strings, "strings");
	scenario(NULL, conn_cfg, "connection configuration");
	scenario(NULL, srq_cfg, "shared receive queue configuration");
	scenario(NULL, peer_cfg, "peer configuration");
	scenario(NULL, sizes_used, "sizes as used");
	scenario(&ib, access_flags, "access flags, InfiniBand");
	scenario(&iwarp, access_flags, "access flags, iWARP");
	scenario(&usnic, access_flags, "access flags, another transport");
	scenario(&unknown, access_flags, "access flags, unknown transport");
}
