# SPDX-License-Identifier: BSD-3-Clause
"""Opens soft0 by pyverbs, and writes to a region of it."""

import pyverbs.device as d
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE

print([x.name.decode() for x in d.get_device_list()])
with d.Context(name='soft0') as c, PD(c) as pd, MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE) as mr:
    mr.write('registered', 10)
    print(mr.read(10, 0).decode())
