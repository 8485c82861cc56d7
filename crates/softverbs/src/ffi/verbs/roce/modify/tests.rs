// SPDX-License-Identifier: BSD-3-Clause
//! Transitions of a queue pair with a mock connection and network, which record their calls.

use super::*;
use crate::ffi::verbs::qp_state::number_of;
use transport::roce::wire::gid;

use std::cell::{Cell, RefCell};

/// A connection that records its calls.
struct Recorded {
    calls: RefCell<Vec<String>>,
    fails: Cell<Option<Errno>>,
    state: Cell<State>,
}

impl Default for Recorded {
    fn default() -> Self {
        Self { calls: RefCell::default(), fails: Cell::default(), state: Cell::new(State::Reset) }
    }
}

impl Recorded {
    /// Records a transition, which leads to a state unless it fails.
    fn moves(&self, to: State, call: String) -> Result<(), Errno> {
        self.note(call)?;
        self.state.set(to);
        Ok(())
    }

    fn note(&self, call: String) -> Result<(), Errno> {
        self.calls.borrow_mut().push(call);
        self.fails.get().map_or(Ok(()), Err)
    }

    fn taken(&self) -> String {
        self.calls.take().join("; ")
    }
}

impl Connection for Recorded {
    fn set_init(&self, init: bool) {
        let _ = self.moves(if init { State::Init } else { State::Reset }, format!("init {init}"));
    }
    fn ready_to_receive(&self, route: Route, terms: ReceiveTerms) -> Result<(), Errno> {
        let Route { local, peer, scope, traffic_class, hop_limit } = route;
        self.moves(
            State::Rtr,
            format!("receive {local} {peer} {scope} {traffic_class} {hop_limit} {terms:?}"),
        )
    }
    fn ready_to_send(&self, terms: SendTerms) -> Result<(), Errno> {
        self.moves(State::Rts, format!("send {terms:?}"))
    }
    fn ready_for_datagrams(&self, terms: ud::Terms) -> Result<(), Errno> {
        self.moves(State::Rtr, format!("receive {terms:x?}"))
    }
    fn send_datagrams(&self, psn: Psn) -> Result<(), Errno> {
        self.moves(State::Rts, format!("send {psn:?}"))
    }
    fn resume(&self) -> Result<(), Errno> {
        self.moves(State::Rts, "resume".to_owned())
    }
    fn drain(&self, on: bool, notify: bool) -> Result<(), Errno> {
        self.moves(if on { State::Sqd } else { State::Rts }, format!("drain {on} {notify}"))
    }
    fn change(&self, change: Change) -> Result<(), Errno> {
        self.note(format!("change {:?} {:?} {:?}", change.access, change.rnr_timer, change.qkey))
    }
    fn reset(&self) -> Result<(), Errno> {
        self.moves(State::Reset, "reset".to_owned())
    }
    fn disconnect(&self) {
        let _ = self.moves(State::Err, "disconnect".to_owned());
    }
    fn state(&self) -> State {
        self.state.get()
    }
}

/// 10.0.0.1 and fe80::1 on interface 2, whose MTU is 1500; 127.0.0.1.
struct TestNetwork;

impl Network for TestNetwork {
    fn source(&self, index: usize) -> Option<(IpAddr, u32)> {
        let (ip, interface) = [("10.0.0.1", 2), ("fe80::1", 2), ("127.0.0.1", 1)].get(index).copied()?;
        Some((ip.parse().unwrap(), interface))
    }
    fn path(&self, local: IpAddr, peer: IpAddr, _scope: u32) -> Result<Path, Errno> {
        match (local.is_loopback(), peer.is_loopback()) {
            (true, true) => Ok(Path { mtu: 65_536, hop_limit: 64 }),
            (false, false) => Ok(Path { mtu: 1500, hop_limit: 63 }),
            _ => Err(libc::ENETUNREACH),
        }
    }
    fn port_mtu(&self) -> PathMtu {
        PathMtu::Mtu1024
    }
    fn check_neighbour(&self, _local: IpAddr, peer: IpAddr, _scope: u32) -> Result<(), Errno> {
        let is_absent = peer == IpAddr::from([10, 0, 0, 99]);
        if is_absent { Err(libc::ETIMEDOUT) } else { Ok(()) }
    }
}

const INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
const RTR: u32 = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
const RTS: u32 = STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;

/// Attributes that are right for each transition to `state`.
fn to(state: State) -> ibv_qp_attr {
    let mut attr = blank();
    attr.qp_state = number_of(state);
    attr.port_num = 1;
    attr.qp_access_flags = 0b1111;
    attr.path_mtu = 3;
    attr.dest_qp_num = 0x12_3456;
    (attr.rq_psn, attr.sq_psn) = (0xff_ffff, 7);
    (attr.max_dest_rd_atomic, attr.max_rd_atomic) = (16, 8);
    attr.min_rnr_timer = 12;
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 6);
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid.raw = gid("10.0.0.2".parse().unwrap());
    attr.ah_attr.grh.traffic_class = 0x20;
    attr.ah_attr.grh.hop_limit = 1;
    attr
}

#[derive(Default)]
struct Qp {
    /// By default RC.
    kind: Option<Kind>,
    connection: Recorded,
    modified: Option<Modified>,
}

impl Qp {
    fn modify(&mut self, attr: &ibv_qp_attr, mask: u32) -> Result<String, Refusal> {
        let modified = self.modified.get_or_insert_with(Modified::new);
        let result =
            modified.modify(self.kind.unwrap_or(Kind::Rc), attr, mask, &self.connection, &TestNetwork);
        let calls = self.connection.taken();
        result.map(|()| calls)
    }

    fn state(&self) -> State {
        self.connection.state()
    }

    /// A queue pair in this state.
    fn at(state: State) -> Self {
        let mut qp = Self::default();
        for (next, mask) in [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, RTS), (State::Sqd, STATE)] {
            if qp.state() != state {
                qp.modify(&to(next), mask).unwrap();
            }
        }
        assert_eq!(qp.state(), state);
        qp
    }
}

/// A refused transition to RTR with attributes that `spoil` has changed.
fn refused_rtr(spoil: impl FnOnce(&mut ibv_qp_attr)) -> String {
    let mut qp = Qp::at(State::Init);
    let mut attr = to(State::Rtr);
    spoil(&mut attr);
    let refusal = qp.modify(&attr, RTR).unwrap_err();
    assert_eq!((refusal.errno, qp.state()), (libc::EINVAL, State::Init));
    let modified = qp.modified.as_ref().unwrap();
    assert_eq!((modified.attributes().dest_qp_num, modified.attributes().path_mtu), (0, 0), "as before");
    refusal.why.strip_prefix("INIT to RTR: ").expect("the transition").to_owned()
}

#[test]
fn a_connection_gets_the_terms_that_were_set() {
    let mut qp = Qp::default();
    assert_eq!(qp.modify(&to(State::Init), INIT).unwrap(), "init true");
    assert_eq!(
        qp.modify(&to(State::Rtr), RTR).unwrap(),
        "receive 10.0.0.1 10.0.0.2 0 32 63 ReceiveTerms { mtu: Mtu1024, dest_qp: 1193046, pkey: 65535, rq_psn: Psn(ffffff), \
         reads: 16, rnr_timer: 12, access: 15 }"
    );
    assert_eq!(
        qp.modify(&to(State::Rts), RTS).unwrap(),
        "send SendTerms { sq_psn: Psn(000007), timeout: 14, retries: 7, rnr_retries: 6, reads: 8 }"
    );
    let mut drained = to(State::Sqd);
    drained.en_sqd_async_notify = 1;
    assert_eq!(qp.modify(&drained, STATE | EN_SQD_ASYNC_NOTIFY).unwrap(), "drain true true");
    assert_eq!(qp.modify(&to(State::Rts), STATE).unwrap(), "drain false false");
    assert_eq!(qp.modify(&to(State::Err), STATE).unwrap(), "disconnect");
    assert_eq!(qp.modify(&to(State::Err), STATE).unwrap(), "");
    assert_eq!(qp.modify(&to(State::Reset), STATE).unwrap(), "reset");
    assert_eq!(qp.state(), State::Reset);
    assert_eq!(qp.modified.unwrap().attributes().dest_qp_num, 0, "RESET forgets what was set");
}

#[test]
fn what_was_set_is_returned() {
    let qp = Qp::at(State::Rts);
    let attr = *qp.modified.as_ref().unwrap().attributes();
    assert_eq!((attr.port_num, attr.qp_access_flags, attr.path_mtu), (1, 15, 3));
    assert_eq!((attr.dest_qp_num, attr.rq_psn, attr.sq_psn), (0x12_3456, 0xff_ffff, 7));
    assert_eq!((attr.max_dest_rd_atomic, attr.max_rd_atomic, attr.min_rnr_timer), (16, 8, 12));
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (14, 7, 6));
    assert_eq!((attr.ah_attr.grh.hop_limit, attr.ah_attr.grh.traffic_class), (1, 0x20));
    assert_eq!(attr.qkey, 0, "not set");
}

#[test]
fn a_link_local_destination_has_the_interface_of_its_source() {
    let mut attr = to(State::Rtr);
    attr.ah_attr.grh.dgid.raw = gid("fe80::2".parse().unwrap());
    attr.ah_attr.grh.sgid_index = 1;
    let calls = Qp::at(State::Init).modify(&attr, RTR).unwrap();
    assert!(calls.starts_with("receive fe80::1 fe80::2 2 "), "{calls}");
}

#[test]
fn a_path_that_cannot_be_is_refused_with_the_reason() {
    let why = refused_rtr(|attr| attr.ah_attr.is_global = 0);
    assert!(why.contains("ah_attr.is_global is 0") && why.contains("ibv_rc_pingpong -g"), "{why}");
    let why = refused_rtr(|attr| attr.path_mtu = 5);
    assert!(why.starts_with("the path MTU is 4096 bytes, and the route from 10.0.0.1 to 10.0.0.2"), "{why}");
    assert!(why.contains("an MTU of 1500, which permits 1024;"), "{why}");
    let why = refused_rtr(|attr| attr.ah_attr.grh.dgid.raw = [0; 16]);
    assert_eq!(why, "grh.dgid is ::, which is not the address of a host or a group");
    let why = refused_rtr(|attr| attr.ah_attr.grh.dgid.raw = gid("224.0.0.1".parse().unwrap()));
    assert!(why.ends_with("which is not the address of a host"), "{why}");
    let why = refused_rtr(|attr| attr.ah_attr.grh.dgid.raw = gid("fe80::2".parse().unwrap()));
    assert!(why.contains("one is IPv4, the other IPv6"), "{why}");
    let why = refused_rtr(|attr| attr.ah_attr.grh.sgid_index = 9);
    assert_eq!(why, "grh.sgid_index is 9, which is an empty entry of the GID table");
    let why = refused_rtr(|attr| attr.ah_attr.port_num = 2);
    assert_eq!(why, "ah_attr.port_num is 2; soft0 has only 1");
}

#[test]
fn a_host_without_a_route_is_the_errno_of_the_kernel() {
    let mut attr = to(State::Rtr);
    attr.ah_attr.grh.sgid_index = 2;
    let refusal = Qp::at(State::Init).modify(&attr, RTR).unwrap_err();
    assert_eq!(refusal.errno, libc::ENETUNREACH);
    assert!(refusal.why.contains("there is no route from 127.0.0.1 to 10.0.0.2"), "{refusal}");
}

#[test]
fn a_peer_that_does_not_answer_is_a_timeout_as_in_the_kernel() {
    let mut attr = to(State::Rtr);
    attr.ah_attr.grh.dgid.raw = gid("10.0.0.99".parse().unwrap());
    let mut qp = Qp::at(State::Init);
    let refusal = qp.modify(&attr, RTR).unwrap_err();
    assert_eq!((refusal.errno, qp.state()), (libc::ETIMEDOUT, State::Init));
    assert!(refusal.why.contains("no neighbour of 10.0.0.1 answers for 10.0.0.99"), "{refusal}");
}

#[test]
fn loopback_takes_the_largest_path_mtu() {
    let mut attr = to(State::Rtr);
    attr.path_mtu = 5;
    attr.ah_attr.grh.sgid_index = 2;
    attr.ah_attr.grh.dgid.raw = gid("127.0.0.1".parse().unwrap());
    assert!(Qp::at(State::Init).modify(&attr, RTR).unwrap().contains("Mtu4096"));
}

#[test]
fn attributes_out_of_range_are_refused_by_name() {
    type Spoil = fn(&mut ibv_qp_attr);
    let cases: [(Spoil, &str); 7] = [
        (|attr| attr.path_mtu = 0, "path_mtu is 0, not from 1 to 5"),
        (|attr| attr.path_mtu = 6, "path_mtu is 6, not from 1 to 5"),
        (|attr| attr.dest_qp_num = 1, "dest_qp_num is 1, not from 2 to 16777214"),
        (|attr| attr.dest_qp_num = 1 << 24, "dest_qp_num is 16777216, not from 2 to 16777214"),
        (|attr| attr.rq_psn = 1 << 24, "rq_psn is 16777216, not from 0 to 16777215"),
        (|attr| attr.max_dest_rd_atomic = 129, "max_dest_rd_atomic is 129, not from 0 to 128"),
        (|attr| attr.min_rnr_timer = 32, "min_rnr_timer is 32, not from 0 to 31"),
    ];
    for (spoil, expected) in cases {
        assert_eq!(refused_rtr(spoil), expected);
    }
    let cases: [(Spoil, &str); 5] = [
        (|attr| attr.timeout = 32, "timeout is 32, not from 0 to 31"),
        (|attr| attr.retry_cnt = 8, "retry_cnt is 8, not from 0 to 7"),
        (|attr| attr.rnr_retry = 8, "rnr_retry is 8, not from 0 to 7"),
        (|attr| attr.max_rd_atomic = 255, "max_rd_atomic is 255, not from 0 to 128"),
        (|attr| attr.sq_psn = u32::MAX, "sq_psn is 4294967295, not from 0 to 16777215"),
    ];
    for (spoil, expected) in cases {
        let mut attr = to(State::Rts);
        spoil(&mut attr);
        assert_eq!(Qp::at(State::Rtr).modify(&attr, RTS).unwrap_err().why, format!("RTR to RTS: {expected}"));
    }
    let cases: [(Spoil, &str); 3] = [
        (|attr| attr.pkey_index = 1, "pkey_index is 1; soft0 has only 0"),
        (|attr| attr.port_num = 2, "port_num is 2; soft0 has only 1"),
        (|attr| attr.qp_access_flags = 1 << 30, "qp_access_flags has unknown flags: 0x40000000"),
    ];
    for (spoil, expected) in cases {
        let mut attr = to(State::Init);
        spoil(&mut attr);
        assert_eq!(Qp::default().modify(&attr, INIT).unwrap_err().why, format!("RESET to INIT: {expected}"));
    }
}

#[test]
fn what_the_connection_refuses_changes_nothing() {
    let mut qp = Qp::at(State::Init);
    qp.connection.fails.set(Some(libc::ENOMEM));
    assert_eq!(qp.modify(&to(State::Rtr), RTR).unwrap_err().errno, libc::ENOMEM);
    assert_eq!((qp.state(), qp.modified.unwrap().attributes().dest_qp_num), (State::Init, 0));
}

#[test]
fn a_connection_that_has_ended_is_in_the_state_err() {
    let mut qp = Qp::at(State::Rts);
    qp.connection.state.set(State::Err);
    assert_eq!(qp.modify(&to(State::Rts), STATE).unwrap_err().errno, libc::EINVAL);
    assert_eq!(qp.modify(&to(State::Reset), STATE).unwrap(), "reset");
}

#[test]
fn attributes_change_within_a_state() {
    let mut qp = Qp::at(State::Rts);
    let mut attr = to(State::Rts);
    assert_eq!(qp.modify(&attr, STATE | ACCESS_FLAGS | MIN_RNR_TIMER).unwrap(), "", "as they are");
    attr.qp_access_flags = 1;
    assert_eq!(qp.modify(&attr, ACCESS_FLAGS).unwrap(), "change Some(1) None None", "without IBV_QP_STATE");
    attr.cur_qp_state = number_of(State::Sqd);
    let why = qp.modify(&attr, STATE | CUR_STATE).unwrap_err().why;
    assert_eq!(why, "RTS to RTS: cur_qp_state is 4");
    attr.cur_qp_state = number_of(State::Rts);
    assert_eq!(qp.modify(&attr, STATE | CUR_STATE).unwrap(), "");
    let mut qp = Qp::at(State::Sqd);
    let mut attr = to(State::Sqd);
    attr.min_rnr_timer = 1;
    assert_eq!(qp.modify(&attr, STATE | MIN_RNR_TIMER | TIMEOUT).unwrap(), "change None Some(1) None");
    attr.timeout = 20;
    assert_eq!(qp.modify(&attr, STATE | TIMEOUT).unwrap_err().errno, libc::EOPNOTSUPP);
}

#[test]
fn path_migration_is_not_supported() {
    let mut qp = Qp::at(State::Rtr);
    let mut attr = to(State::Rts);
    assert_eq!(qp.modify(&attr, RTS | ALT_PATH).unwrap_err().errno, libc::EOPNOTSUPP);
    attr.path_mig_state = ibv_mig_state::IBV_MIG_REARM;
    assert_eq!(qp.modify(&attr, RTS | PATH_MIG_STATE).unwrap_err().errno, libc::EOPNOTSUPP);
    attr.path_mig_state = ibv_mig_state::IBV_MIG_MIGRATED;
    assert!(qp.modify(&attr, RTS | PATH_MIG_STATE).is_ok());
}

#[test]
fn datagrams_need_a_q_key_and_no_peer() {
    let mut qp = Qp { kind: Some(Kind::Ud), ..Qp::default() };
    let mut attr = to(State::Init);
    attr.qkey = 0x1234;
    assert_eq!(qp.modify(&attr, STATE | PKEY_INDEX | PORT | QKEY).unwrap(), "init true");
    let received = qp.modify(&to(State::Rtr), STATE).unwrap();
    assert_eq!(received, "receive Terms { mtu: Mtu1024, qkey: 1234 }");
    assert_eq!(qp.modify(&to(State::Rts), STATE | SQ_PSN).unwrap(), "send Psn(000007)");
    attr.qkey = 0x5678;
    assert_eq!(qp.modify(&attr, QKEY).unwrap(), "change None None Some(22136)");
    assert!(qp.connection.state.replace(State::Sqe) == State::Rts);
    assert_eq!(qp.modify(&to(State::Rts), STATE).unwrap(), "resume");
    assert_eq!(qp.modified.unwrap().attributes().qkey, 0x5678);
}
