// SPDX-License-Identifier: BSD-3-Clause
//! Groups of functions: those of each file of `src/capi`, in the order of its `mod.rs`.

use std::fs;
use std::path::Path;

use crate::header::{Function, Header};

pub(crate) struct Group<'a> {
    /// The first line of the file's documentation: "Memory regions".
    pub title: String,
    pub functions: Vec<&'a Function>,
    /// Further pages of interest to a reader of the group's pages.
    pub related: &'static [&'static str],
}

/// Functions that are used together with those of a group, by the name of its file.
const RELATED: [(&str, &[&str]); 12] = [
    ("utils", &["rpma_peer_new"]),
    ("peer", &["rpma_utils_get_ibv_context", "rpma_mr_reg", "rpma_ep_listen", "rpma_conn_req_new"]),
    (
        "mr",
        &[
            "rpma_atomic_write",
            "rpma_conn_req_recv",
            "rpma_flush",
            "rpma_peer_new",
            "rpma_read",
            "rpma_recv",
            "rpma_send",
            "rpma_srq_recv",
            "rpma_write",
            "rpma_write_atomic",
        ],
    ),
    ("peer_cfg", &["rpma_conn_apply_remote_peer_cfg", "rpma_flush"]),
    ("conn_cfg", &["rpma_conn_req_new", "rpma_ep_next_conn_req"]),
    ("srq", &["rpma_srq_recv", "rpma_conn_cfg_set_srq"]),
    ("ep", &["rpma_conn_req_connect", "rpma_conn_req_delete"]),
    ("conn_req", &["rpma_ep_next_conn_req", "rpma_conn_cfg_new", "rpma_conn_next_event"]),
    ("conn", &["rpma_conn_req_connect", "rpma_cq_get_wc"]),
    ("rma", &["rpma_mr_reg", "rpma_mr_remote_from_descriptor", "rpma_conn_get_cq", "rpma_cq_get_wc"]),
    ("messaging", &["rpma_mr_reg", "rpma_conn_req_recv", "rpma_conn_get_cq", "rpma_cq_get_wc"]),
    ("cq", &["rpma_conn_get_cq", "rpma_conn_get_rcq", "rpma_conn_wait", "rpma_srq_get_rcq"]),
];

/// Reads the groups. Every function of the header must be in exactly one.
pub(crate) fn read<'a>(capi: &Path, header: &'a Header) -> Result<Vec<Group<'a>>, String> {
    let text = |file: &str| {
        let path = capi.join(file);
        fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut groups = Vec::new();
    let modules = text("mod.rs")?;
    for module in modules.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')) {
        let source = text(&format!("{module}.rs"))?;
        let title = source.lines().find_map(|line| line.strip_prefix("//! "));
        let title = title.ok_or_else(|| format!("{module}.rs does not say what it is"))?;
        let names =
            source.lines().filter_map(|line| line.split_once("extern \"C\" fn ")?.1.split('(').next());
        let related =
            RELATED.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, related)| related);
        groups.push(Group {
            title: title.trim_end_matches('.').to_owned(),
            functions: names.filter_map(|name| header.function(name)).collect(),
            related,
        });
    }
    for function in &header.functions {
        let found =
            groups.iter().flat_map(|group| &group.functions).filter(|f| f.name == function.name).count();
        if found != 1 {
            return Err(format!("{} is in {found} groups of {}", function.name, capi.display()));
        }
    }
    match groups.iter().flat_map(|group| group.related).find(|name| header.function(name).is_none()) {
        Some(name) => Err(format!("there is no function {name} to refer to")),
        None => Ok(groups),
    }
}
