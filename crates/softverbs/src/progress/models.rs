// SPDX-License-Identifier: BSD-3-Clause
//! Models for loom.
