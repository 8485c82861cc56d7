# SPDX-License-Identifier: BSD-3-Clause
"""Loads libibverbs, and prints the names of its devices."""

import ctypes

verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
for i in range(count.value):
    print(verbs.ibv_get_device_name(ctypes.c_void_p(devices[i])).decode())
