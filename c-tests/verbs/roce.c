/* SPDX-License-Identifier: BSD-3-Clause */
/* roce.c -- soft0 as a RoCE device: the device, its GIDs, the states of a queue pair */
#include "rc.h"

static void
nothing(struct side *side)
{
	(void)side;
}

static void
device_i(struct side *side)
{
	struct ibv_context *device = roce_device();
	struct ibv_gid_entry entry;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	(void)side;
	EXPECT(device->device->transport_type == IBV_TRANSPORT_IB && device->device->node_type == IBV_NODE_CA, "");
	DONE(ibv_query_device(device, &attr));
	EXPECT(attr.node_guid == ibv_get_device_guid(device->device) && attr.max_ah > 0, "");
	DONE(ibv_query_port(device, 1, &port));
	EXPECT(port.link_layer == IBV_LINK_LAYER_ETHERNET && (port.flags & IBV_QPF_GRH_REQUIRED) != 0, "");
	EXPECT(port.active_mtu >= IBV_MTU_256 && port.gid_tbl_len == 256, "MTU %d, %d GIDs", port.active_mtu, port.gid_tbl_len);
	DONE(ibv_query_pkey(device, 1, 0, &pkey));
	EXPECT(pkey == 0xffff, "P_Key %#x", pkey);
	DONE(ibv_query_gid_ex(device, 1, gid_index(device), &entry, 0));
	EXPECT(ibv_query_gid_ex(device, 1, 255, &entry, 0) == ENODATA, "a hole");
	DONE(ibv_query_gid(device, 1, 255, &gid));
	EXPECT(gid.global.subnet_prefix == 0 && gid.global.interface_id == 0, "a hole");
	EXPECT(ibv_query_gid(device, 1, 256, &gid) == -1, "past the table");
	DONE(ibv_close_device(device));
}

static void
transitions_i(struct side *side)
{
	const int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int ready_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE}, found, wrong;
	struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 77, .rq_psn = 5,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
	struct ibv_context *device = roce_device();
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_ah *ah;
	struct ibv_qp *qp;

	(void)side;
	MADE(pd);
	MADE(cq);
	qp = ibv_create_qp(pd, &attr);
	MADE(qp);
	ready.ah_attr.grh.sgid_index = gid_index(device);
	DONE(ibv_query_gid(device, 1, ready.ah_attr.grh.sgid_index, &ready.ah_attr.grh.dgid));
	EXPECT(qp->state == IBV_QPS_RESET && ibv_modify_qp(qp, &ready, ready_mask) == EINVAL, "not from RESET");
	EXPECT(ibv_modify_qp(qp, &init, init_mask & ~IBV_QP_PORT) == EINVAL, "an attribute is missing");
	EXPECT(ibv_modify_qp(qp, &init, init_mask | IBV_QP_SQ_PSN) == EINVAL, "an unexpected attribute");
	DONE(ibv_modify_qp(qp, &init, init_mask));
	DONE(ibv_query_qp(qp, &found, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &attr));
	EXPECT(found.qp_state == IBV_QPS_INIT && found.qp_access_flags == IBV_ACCESS_REMOTE_WRITE && found.port_num == 1, "");
	EXPECT(ibv_modify_qp(qp, &ready, ready_mask & ~IBV_QP_AV) == EINVAL, "without a path");
	wrong = ready;
	wrong.ah_attr.is_global = 0;
	EXPECT(ibv_modify_qp(qp, &wrong, ready_mask) == EINVAL, "without a global route");
	wrong = ready;
	memset(&wrong.ah_attr.grh.dgid, 0, sizeof(wrong.ah_attr.grh.dgid));
	EXPECT(ibv_modify_qp(qp, &wrong, ready_mask) == EINVAL, "a GID that is not an address");
	wrong = ready;
	wrong.ah_attr.grh.sgid_index = 255;
	EXPECT(ibv_modify_qp(qp, &wrong, ready_mask) == EINVAL, "an index without a GID");
	EXPECT(qp->state == IBV_QPS_INIT, "state %d", qp->state);
	ah = ibv_create_ah(pd, &ready.ah_attr);
	MADE(ah);
	DONE(ibv_destroy_ah(ah));
	init.qp_state = IBV_QPS_RESET;
	DONE(ibv_modify_qp(qp, &init, IBV_QP_STATE));
	EXPECT(qp->state == IBV_QPS_RESET, "state %d", qp->state);
	DONE(ibv_destroy_qp(qp));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	DONE(ibv_close_device(device));
}

const struct test roce[] = {
	{.name = "roce-device", .target = nothing, .initiator = device_i, .missing = not_soft},
	{.name = "roce-states", .target = nothing, .initiator = transitions_i, .missing = not_soft},
	{.name = NULL},
};
