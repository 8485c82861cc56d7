# SPDX-License-Identifier: BSD-3-Clause
"""Connects a queue pair without rdma_cm, which soft0 refuses."""

from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPCap, QPInitAttr, QPAttr
from pyverbs.enums import IBV_QPT_RC

with Context(name='soft0') as c, PD(c) as pd, CQ(c, 8) as cq:
    with QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())) as qp:
        attr = QPAttr(port_num=1)
        qp.to_init(attr)
        qp.to_rtr(attr)
