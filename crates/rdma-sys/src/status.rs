// SPDX-License-Identifier: BSD-3-Clause
//! Names of completion statuses.

use super::ibv_wc_status;

/// The meaning of a work completion status, with its name in verbs.h.
pub fn wc_status_text(status: ibv_wc_status::Type) -> &'static str {
    use ibv_wc_status::*;
    match status {
        IBV_WC_SUCCESS => "success (IBV_WC_SUCCESS)",
        IBV_WC_LOC_LEN_ERR => "local length error (IBV_WC_LOC_LEN_ERR)",
        IBV_WC_LOC_QP_OP_ERR => "local queue pair operation error (IBV_WC_LOC_QP_OP_ERR)",
        IBV_WC_LOC_EEC_OP_ERR => "local end-to-end context operation error (IBV_WC_LOC_EEC_OP_ERR)",
        IBV_WC_LOC_PROT_ERR => "local protection error (IBV_WC_LOC_PROT_ERR)",
        IBV_WC_WR_FLUSH_ERR => "work request flushed (IBV_WC_WR_FLUSH_ERR)",
        IBV_WC_MW_BIND_ERR => "memory window bind error (IBV_WC_MW_BIND_ERR)",
        IBV_WC_BAD_RESP_ERR => "bad response (IBV_WC_BAD_RESP_ERR)",
        IBV_WC_LOC_ACCESS_ERR => "local access error (IBV_WC_LOC_ACCESS_ERR)",
        IBV_WC_REM_INV_REQ_ERR => "remote invalid request error (IBV_WC_REM_INV_REQ_ERR)",
        IBV_WC_REM_ACCESS_ERR => "remote access error (IBV_WC_REM_ACCESS_ERR)",
        IBV_WC_REM_OP_ERR => "remote operation error (IBV_WC_REM_OP_ERR)",
        IBV_WC_RETRY_EXC_ERR => "transport retry counter exceeded (IBV_WC_RETRY_EXC_ERR)",
        IBV_WC_RNR_RETRY_EXC_ERR => "RNR retry counter exceeded (IBV_WC_RNR_RETRY_EXC_ERR)",
        IBV_WC_LOC_RDD_VIOL_ERR => "local RDD violation (IBV_WC_LOC_RDD_VIOL_ERR)",
        IBV_WC_REM_INV_RD_REQ_ERR => "remote invalid RD request (IBV_WC_REM_INV_RD_REQ_ERR)",
        IBV_WC_REM_ABORT_ERR => "remote abort (IBV_WC_REM_ABORT_ERR)",
        IBV_WC_INV_EECN_ERR => "invalid end-to-end context number (IBV_WC_INV_EECN_ERR)",
        IBV_WC_INV_EEC_STATE_ERR => "invalid end-to-end context state (IBV_WC_INV_EEC_STATE_ERR)",
        IBV_WC_FATAL_ERR => "fatal error (IBV_WC_FATAL_ERR)",
        IBV_WC_RESP_TIMEOUT_ERR => "response timeout (IBV_WC_RESP_TIMEOUT_ERR)",
        IBV_WC_GENERAL_ERR => "general error (IBV_WC_GENERAL_ERR)",
        _ => "unknown status",
    }
}
