// SPDX-License-Identifier: BSD-3-Clause
//! RoCE v2: RDMA over UDP. [`wire`] has the packet formats.

pub mod wire;
