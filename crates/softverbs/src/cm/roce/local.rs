// SPDX-License-Identifier: BSD-3-Clause
//! The local end of an identifier: its port of rdma_cm, and its exchange.
//!
//! The port spaces are those of rdma_cm, not of TCP. Within a process [`Ports`] applies the rules of the
//! kernel's rdma_cm, between processes a [`Claim`] does: an identifier without RDMA_OPTION_ID_REUSEADDR has
//! it from bind(2) on, others when they listen.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use super::agent::{Agent, random};
use super::multicast::Groups;
use crate::cm::event::DatagramPath;
use crate::cm::id::{Connecting, Id, Listening, Protocol};
use crate::cm::options::Options;
use crate::cm::ports::{Binding, Ports};
use crate::cm::protocol::{Attempt, Refused};
use crate::cm::{addr, path};
use crate::limits::BACKLOG;
use crate::port::{Claim, ListenerSocket};
use crate::qp::Kind;
use crate::sys::{self, Errno};
use crate::{config, lock};
use transport::roce::cm::{Bound, CommId, Connect, ListenerId, Manager, Resolve, Route, Terms};
use transport::roce::wire::cm::{PortSpace, ServiceId, Transport};
use transport::roce::wire::{DEFAULT_PKEY, Psn};
use transport::units::Micros;

static TCP: Ports = Ports::new();
static IB: Ports = Ports::new();
static UDP: Ports = Ports::new();

/// Ports that are chosen for a program: the range of the IANA.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Random ports that are tried.
const TRIES: u32 = 64;
/// The first port that needs no privilege.
const FIRST_UNPRIVILEGED: u16 = 1024;
/// The local ACK timeout of connections, as in the kernel: 4.096 us * 2^17.
const ACK_TIMEOUT: u8 = 17;

#[derive(Default)]
struct State {
    binding: Option<Binding>,
    claim: Option<Arc<Claim>>,
    /// RDMA_OPTION_ID_AFONLY of the bound identifier.
    only_ipv6: bool,
    /// The local address of an identifier that is not bound.
    source: Option<SocketAddr>,
    exchange: Option<(Arc<Agent>, CommId)>,
    groups: Groups,
}

/// The local end of an identifier over RoCE.
pub(in crate::cm) struct Local {
    space: PortSpace,
    kind: Kind,
    state: Mutex<State>,
}

fn any_port() -> u16 {
    let ports = u32::from(*EPHEMERAL.end() - *EPHEMERAL.start()) + 1;
    EPHEMERAL.start() + (random() % ports) as u16
}

/// The addresses that an identifier bound to `address` has.
fn bound_to(address: &SocketAddr, only_ipv6: bool) -> Bound {
    match address.ip() {
        ip if !ip.is_unspecified() => Bound::Address(ip),
        IpAddr::V4(_) => Bound::AnyV4,
        IpAddr::V6(_) if only_ipv6 => Bound::AnyV6,
        IpAddr::V6(_) => Bound::Any,
    }
}

impl Local {
    pub(in crate::cm) fn new(space: PortSpace, kind: Kind) -> Self {
        Self { space, kind, state: Mutex::default() }
    }

    /// That of a connect request.
    pub(in crate::cm) fn of(
        space: PortSpace,
        kind: Kind,
        exchange: CommId,
        source: Option<SocketAddr>,
    ) -> Self {
        let exchange = Agent::get().ok().map(|agent| (agent, exchange));
        let state = State { exchange, source, ..State::default() };
        Self { space, kind, state: Mutex::new(state) }
    }

    fn ports(&self) -> &'static Ports {
        match self.space {
            PortSpace::Tcp => &TCP,
            PortSpace::Ib => &IB,
            PortSpace::Udp | PortSpace::Ipoib => &UDP,
        }
    }

    /// The transport service of the queue pairs.
    fn transport(&self) -> Transport {
        if self.kind == Kind::Uc { Transport::Uc } else { Transport::Rc }
    }

    fn claim_at(&self, address: &SocketAddr, only_ipv6: bool) -> Result<Claim, Refused> {
        match Claim::new(self.space, address.port(), bound_to(address, only_ipv6)) {
            Err(libc::EADDRNOTAVAIL) => Err(Refused::Wildcard),
            claimed => Ok(claimed?),
        }
    }

    fn bind_port(&self, wanted: &SocketAddr, options: Options) -> Result<SocketAddr, Refused> {
        let only_ipv6 = options.only_ipv6 == Some(true);
        let mut claim = None;
        let binding = self.ports().bind(wanted, options.reuse, wanted.is_ipv4() || only_ipv6, || {
            if !options.reuse {
                claim = Some(Arc::new(self.claim_at(wanted, only_ipv6)?));
            }
            Ok(*wanted)
        })?;
        let mut state = lock(&self.state);
        (state.binding, state.claim, state.only_ipv6) = (Some(binding), claim, only_ipv6);
        Ok(*wanted)
    }

    /// Begins the exchange of an identifier.
    fn begin(
        &self,
        id: &Arc<Id>,
        agent: Arc<Agent>,
        begin: impl FnOnce(&mut Manager, Micros) -> Result<CommId, Errno>,
    ) -> Result<Arc<dyn Connecting>, Errno> {
        let exchange = agent.change(|state, now| {
            let exchange = begin(&mut state.manager, now)?;
            state.ids.insert(exchange, Arc::downgrade(id));
            Ok::<_, Errno>(exchange)
        });
        let exchange = exchange?;
        lock(&self.state).exchange = Some((agent.clone(), exchange));
        agent.deliver();
        Ok(Arc::new(Outgoing))
    }

    /// Its exchange. `None` in a child after fork(2), too.
    fn exchange(&self) -> Option<(Arc<Agent>, CommId)> {
        lock(&self.state).exchange.clone().filter(|(agent, _)| agent.is_own())
    }
}

impl Protocol for Local {
    fn report_to(&self, id: &Arc<Id>) {
        if let Some((agent, exchange)) = self.exchange() {
            agent.adopt(exchange, id);
        }
    }

    /// EADDRINUSE: another identifier has address and port. EADDRNOTAVAIL: not an address of this host.
    /// EACCES: the port needs a privilege. EMFILE, ENFILE.
    fn bind(&self, wanted: &SocketAddr, options: Options) -> Result<SocketAddr, Refused> {
        let mut address = *wanted;
        address.set_port(0);
        // The kernel permits only addresses of the host.
        addr::bind(&sys::udp_socket(addr::family(wanted))?, &address)?;
        if wanted.port() != 0 {
            if wanted.port() < FIRST_UNPRIVILEGED && !sys::may_bind_any_port() {
                return Err(libc::EACCES.into());
            }
            return self.bind_port(wanted, options);
        }
        for _ in 0..TRIES {
            address.set_port(any_port());
            match self.bind_port(&address, options) {
                Err(Refused::Wildcard | Refused::Errno(libc::EADDRINUSE)) => {}
                bound => return bound,
            }
        }
        Err(libc::EADDRINUSE.into())
    }

    fn bound(&self) -> Option<SocketAddr> {
        lock(&self.state).binding.as_ref().map(Binding::addr)
    }

    /// An identifier that is not bound gets a port that no other process needs to know.
    fn source(&self, dst: &SocketAddr) -> Result<SocketAddr, Errno> {
        let mut state = lock(&self.state);
        let bound = state.binding.as_ref().map(Binding::addr);
        let source = match bound {
            Some(bound) if !bound.ip().is_unspecified() => bound,
            bound => {
                let mut source = addr::source_for(dst)?;
                source.set_port(bound.map_or_else(any_port, |bound| bound.port()));
                source
            }
        };
        state.source = Some(source);
        Ok(source)
    }

    fn claim(&self) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        let binding = state.binding.as_ref().ok_or(libc::EINVAL)?;
        binding.claim()?;
        if state.claim.is_none() {
            let claim = self.claim_at(&binding.addr(), state.only_ipv6)?;
            state.claim = Some(Arc::new(claim));
        }
        Ok(())
    }

    /// Errors of [`Port::get`](crate::port::Port::get); ENOMEM.
    fn listen(&self, id: &Arc<Id>, backlog: i32) -> Result<Arc<dyn Listening>, Errno> {
        let agent = Agent::get()?;
        let (address, claim, only_ipv6) = {
            let state = lock(&self.state);
            let address = state.binding.as_ref().ok_or(libc::EINVAL)?.addr();
            (address, state.claim.clone().ok_or(libc::EINVAL)?, state.only_ipv6)
        };
        let service = ServiceId::new(self.space, address.port());
        let backlog = if backlog > 0 { backlog } else { BACKLOG }.unsigned_abs();
        let bound = bound_to(&address, only_ipv6);
        let socket = ListenerSocket::open(&agent.port, &claim)?;
        let number = agent.change(|state, _| {
            let number = state.manager.listen(service, self.transport(), bound, backlog);
            state.listeners.insert(number, Arc::downgrade(id));
            number
        });
        Ok(Arc::new(Listener { agent, number, socket }))
    }

    /// EINVAL: the private data is too long. ENETUNREACH and other errors of the route; errors of
    /// [`Port::get`](crate::port::Port::get).
    fn connect(
        &self,
        id: &Arc<Id>,
        Attempt { qp, params, dst, options, .. }: Attempt,
        _has_source: &mut dyn FnMut(&SocketAddr),
    ) -> Result<Arc<dyn Connecting>, Errno> {
        let source = lock(&self.state).source.ok_or(libc::EINVAL)?;
        let agent = Agent::get()?;
        let route = Route { local: source.ip(), remote: dst.ip() };
        if self.kind == Kind::Ud {
            let call = Resolve {
                service: ServiceId::new(self.space, dst.port()),
                source_port: source.port(),
                pkey: DEFAULT_PKEY,
                private_data: &params.private_data,
            };
            return self.begin(id, agent, |manager, now| manager.resolve(route, &call, now));
        }
        let scope = if let SocketAddr::V6(dst) = &dst { dst.scope_id() } else { 0 };
        let path = path::find(source.ip(), dst.ip(), scope)?;
        let mtu = path.largest(dst.ip()).ok_or(libc::EMSGSIZE)?;
        let mtu = config::get().path_mtu.map_or(mtu, |limit| mtu.min(limit));
        let depth = |wanted: u16| u8::try_from(wanted).unwrap_or(u8::MAX);
        let qp = qp.as_ref();
        let call = Connect {
            service: ServiceId::new(self.space, dst.port()),
            transport: self.transport(),
            source_port: source.port(),
            qpn: qp.map_or(params.qp_num, |qp| qp.num),
            srq: qp.map_or(params.srq, |qp| qp.srq.is_some()),
            starting_psn: Psn::new(random() & 0xff_ffff),
            mtu,
            pkey: DEFAULT_PKEY,
            ack_timeout: if options.ack_timeout == 0 { ACK_TIMEOUT } else { options.ack_timeout },
            responder_resources: depth(params.ird),
            initiator_depth: depth(params.ord),
            retry_count: params.retry,
            rnr_retry_count: params.rnr_retry,
            flow_label: 0,
            traffic_class: options.tos.unwrap_or(0),
            hop_limit: path.hop_limit,
            private_data: &params.private_data,
        };
        self.begin(id, agent, |manager, now| manager.connect(route, &call, now))
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    /// Errors of [`Groups::join`].
    fn join(&self, group: IpAddr, receives: bool, options: Options) -> Result<DatagramPath, Errno> {
        let mut state = lock(&self.state);
        let bound = state.binding.as_ref().map(Binding::addr).filter(|bound| !bound.ip().is_unspecified());
        let source = bound.or(state.source).filter(|_| self.kind == Kind::Ud).ok_or(libc::EINVAL)?;
        let local = source.ip();
        state.groups.join(group, local, receives)?;
        let route = Route { local, remote: group };
        Ok(DatagramPath { route, traffic_class: options.tos.unwrap_or(0) })
    }

    fn leave(&self, group: IpAddr) -> Result<bool, Errno> {
        lock(&self.state).groups.leave(group)
    }

    fn needs_queue_pair(&self) -> bool {
        false
    }

    fn disconnect(&self) {
        if let Some((agent, exchange)) = self.exchange() {
            // It fails if the connection has ended, or for datagrams.
            let _ = agent.call(|state, now| state.manager.disconnect(exchange, &[], now));
        }
    }

    fn establish(&self) -> Result<(), Errno> {
        let (agent, exchange) = self.exchange().ok_or(libc::EINVAL)?;
        agent.call(|state, _| state.manager.establish(exchange, &[]))
    }

    fn received_data(&self) {
        if let Some((agent, exchange)) = self.exchange() {
            agent.call(|state, _| state.manager.received_data(exchange));
        }
    }

    fn terms(&self) -> Option<Terms> {
        let (agent, exchange) = self.exchange()?;
        agent.change(|state, _| state.manager.terms(exchange))
    }

    fn release(&self) {
        let State { binding, claim, exchange, .. } = std::mem::take(&mut *lock(&self.state));
        if let Some((agent, exchange)) = exchange {
            agent.destroy(exchange);
        }
        // In this order, so that the address is not given to another identifier while this claim has it.
        drop(claim);
        drop(binding);
    }

    fn permit_reuse(&self) {
        let mut state = lock(&self.state);
        if let Some(binding) = &state.binding {
            binding.permit_reuse();
        }
        state.claim = None;
    }

    /// The type of service is that of the next connection.
    fn apply_tos(&self, _options: Options) {}
}

/// A listener.
struct Listener {
    agent: Arc<Agent>,
    number: ListenerId,
    socket: Arc<ListenerSocket>,
}

impl Listening for Listener {
    fn close(&self) {
        if !self.agent.is_own() {
            // In a child after fork(2), which has closed the socket.
            return;
        }
        self.socket.close();
        self.agent.call(|state, now| {
            state.listeners.remove(&self.number);
            state.manager.stop_listening(self.number, now);
        });
    }

    /// A connection has the traffic class of its initiator.
    fn apply_tos(&self, _options: Options) {}
}

/// A connection attempt, which the exchange of the local end is.
struct Outgoing;

impl Connecting for Outgoing {
    /// The local end, which is released next, destroys the exchange: only once, since the communication id
    /// may then be given to another one.
    fn cancel(&self) {}
}
