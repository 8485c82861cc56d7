# SPDX-License-Identifier: BSD-3-Clause
"""Imports a module that looks functions of libibverbs up."""

import by_dlsym  # noqa: F401
