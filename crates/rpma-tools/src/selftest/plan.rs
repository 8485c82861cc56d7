// SPDX-License-Identifier: BSD-3-Clause
//! The pairs of ends to test: ours on both, ours with the C librpma, soft with the device, soft on both.

use super::end::{Carrier, End};
use super::host::Host;

/// The end of a killed process with soft RoCE is reported in its network namespace only.
const UNNOTICED: &str = "no DREQ comes from a killed process of another host with software RoCE";

/// A pair of ends, or why it is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) initiator: End,
    pub(super) responder: End,
    pub(super) skipped: Option<String>,
}

/// The pairs for this host and the other one, which may be the same.
pub(super) fn pairs(this: &Host, other: &Host, alone: bool) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut add = |initiator: End, responder: End, skipped: Option<String>| {
        pairs.push(Pair { initiator, responder, skipped });
    };
    let here = this.c_librpma.is_none().then(|| "no C librpma is installed here".to_owned());
    let there = other.c_librpma.is_none().then(|| "no C librpma is installed there".to_owned());
    let (ours, c) = (Carrier::Device.ours(), Carrier::Device.c());
    let devices = between_devices(this, other);
    add(ours, ours, devices.clone());
    add(ours, c, devices.clone().or(there.clone()));
    add(c, ours, devices.or(here.clone()));
    add(other_carrier(other).ours(), ours, with_soft(other, alone, "the other side"));
    add(ours, other_carrier(this).ours(), with_soft(this, alone, "this side"));
    for carrier in [Carrier::Iwarp, Carrier::Roce] {
        let (ours, c) = (carrier.ours(), carrier.c());
        add(ours, ours, None);
        add(ours, c, there.clone());
        add(c, ours, here.clone());
    }
    pairs
}

fn between_devices(this: &Host, other: &Host) -> Option<String> {
    match (&this.device, &other.device) {
        (Some(this), Some(other)) if this.transport == other.transport => None,
        (Some(_), Some(_)) => Some("the devices have different transports".to_owned()),
        (None, _) => Some("no RDMA device has this address".to_owned()),
        (_, None) => Some("no RDMA device has the other address".to_owned()),
    }
}

/// The software transport that reaches the device of a host; any, if that is skipped.
fn other_carrier(host: &Host) -> Carrier {
    host.device.as_ref().and_then(|device| device.transport).unwrap_or(Carrier::Roce)
}

fn with_soft(host: &Host, alone: bool, side: &str) -> Option<String> {
    let Some(device) = &host.device else { return Some(format!("{side} has no RDMA device")) };
    match device.transport {
        None => Some("software RDMA does not reach InfiniBand".to_owned()),
        // siw uses the TCP of the kernel, which delivers to this host as well.
        Some(Carrier::Iwarp) if alone && device.is_software => None,
        Some(_) if alone => {
            Some("needs a second host: packets from a host to itself do not pass its adapter".to_owned())
        }
        Some(_) => None,
    }
}

/// A case that a pair cannot pass, or is not required to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exception {
    Skipped(&'static str),
    MayFail(&'static str),
}

/// The exception for a case, if there is one. `devices` are the transports of the devices of both hosts.
pub(super) fn exception(
    case: &str,
    pair: &Pair,
    devices: [Option<Carrier>; 2],
    alone: bool,
) -> Option<Exception> {
    let ends = [pair.initiator, pair.responder];
    let is_device = |end: End| end.carrier == Carrier::Device;
    let is_unnoticed = |end: End| end.carrier == Carrier::Roce && !alone;
    let is_iwarp = |(end, of): (End, Option<Carrier>)| is_device(end) && of == Some(Carrier::Iwarp);
    match case {
        "killed-initiator" if is_unnoticed(pair.initiator) => Some(Exception::Skipped(UNNOTICED)),
        "killed-responder" if is_unnoticed(pair.responder) => Some(Exception::Skipped(UNNOTICED)),
        "write-immediate" | "send-immediate" if ends.into_iter().zip(devices).any(is_iwarp) => {
            Some(Exception::MayFail("an iWARP adapter need not have immediate data"))
        }
        "flush-persistence" | "performance 64" | "performance 64k"
            if ends.into_iter().all(is_device) && ends.iter().any(|end| end.is_c) =>
        {
            Some(Exception::MayFail(
                "the C librpma registers and flushes natively where the device can, for which it needs persistent memory",
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::Device;
    use super::*;

    fn host(transport: Option<Carrier>, is_software: bool, c_librpma: Option<&str>) -> Host {
        let mut host = Host::this("127.0.0.1".parse().unwrap(), None, false);
        host.c_librpma = c_librpma.map(str::to_owned);
        host.device = transport.map(|transport| Device {
            name: "d".to_owned(),
            transport: Some(transport),
            hardware: String::new(),
            firmware: String::new(),
            board: String::new(),
            port: String::new(),
            is_software,
        });
        host
    }

    /// The pairs that are tested.
    fn tested(this: &Host, other: &Host, alone: bool) -> Vec<String> {
        let all = pairs(this, other, alone);
        let all = all.into_iter().filter(|pair| pair.skipped.is_none());
        all.map(|pair| format!("{} - {}", pair.initiator.name(), pair.responder.name())).collect()
    }

    #[test]
    fn exceptions_depend_on_the_pair() {
        let of = |case, initiator: End, responder: End, alone| {
            let pair = Pair { initiator, responder, skipped: None };
            exception(case, &pair, [None, Some(Carrier::Iwarp)], alone)
        };
        let (device, roce) = (Carrier::Device.ours(), Carrier::Roce.ours());
        assert_eq!(of("killed-responder", roce, roce, true), None);
        assert!(matches!(of("killed-responder", device, roce, false), Some(Exception::Skipped(_))));
        assert_eq!(of("killed-initiator", device, roce, false), None);
        assert!(matches!(of("send-immediate", roce, device, true), Some(Exception::MayFail(_))));
        assert_eq!(of("send-immediate", device, roce, true), None);
        for case in ["flush-persistence", "performance 64", "performance 64k"] {
            let exception = of(case, device, Carrier::Device.c(), true);
            assert!(matches!(exception, Some(Exception::MayFail(_))), "{case}");
        }
        assert_eq!(of("flush-persistence", device, device, true), None);
        assert_eq!(of("write", device, Carrier::Device.c(), true), None);
    }

    #[test]
    fn without_a_device_both_transports_are_tested() {
        let (none, c) = (host(None, false, None), host(None, false, Some("1.2.0")));
        assert_eq!(tested(&none, &none, true), ["soft iWARP - soft iWARP", "soft RoCE - soft RoCE"]);
        assert_eq!(tested(&c, &c, true).len(), 6);
        assert_eq!(tested(&none, &c, false)[1], "soft iWARP - soft iWARP, C");
        assert_eq!(pairs(&none, &none, true).len(), 11);
    }

    #[test]
    fn a_device_is_tested_with_itself_and_with_soft_on_another_host() {
        let (none, roce) = (host(None, false, None), host(Some(Carrier::Roce), false, Some("1.2.0")));
        let alone = tested(&roce, &roce, true);
        assert_eq!(
            alone[..4],
            ["device - device", "device - device, C", "device, C - device", "soft iWARP - soft iWARP"]
        );
        assert_eq!(tested(&none, &roce, false)[0], "soft RoCE - device");
        assert_eq!(tested(&roce, &none, false)[0], "device - soft RoCE");
        let iwarp = host(Some(Carrier::Iwarp), true, None);
        assert_eq!(tested(&iwarp, &iwarp, true)[1..3], ["soft iWARP - device", "device - soft iWARP"]);
        assert!(!tested(&iwarp, &roce, false).contains(&"device - device".to_owned()));
    }
}
