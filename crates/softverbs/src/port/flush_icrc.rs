// SPDX-License-Identifier: BSD-3-Clause
//! The ICRC of a FLUSH request: that of the standard, or that of rxe, which drops the former.
//!
//! A peer does not announce which one it accepts, so a requester that must repeat a FLUSH tries the other
//! one, and keeps it for later requests. A FLUSH is also repeated if it was lost, or if the peer takes long
//! to carry it out. So a form that has worked is changed at the second repetition only.
#![forbid(unsafe_code)]

use transport::roce::wire::{Flow, ICRC_LEN, Opcode, Operation, Psn, icrc, psn_of};

const FLUSH: Opcode = Opcode::Rc(Operation::Flush);

#[derive(Debug, Default)]
pub(super) struct FlushIcrc {
    /// The PSN of the last FLUSH request.
    last: Option<Psn>,
    /// The PSN of the first FLUSH request that was sent again, and how often.
    repeated: Option<(Psn, u32)>,
    /// The peer has acknowledged a request in this form, as far as can be determined.
    has_worked: bool,
    /// FLUSH requests get the ICRC of rxe.
    is_of_rxe: bool,
}

fn flush_psn(packet: &[u8]) -> Option<Psn> {
    psn_of(packet).filter(|_| packet[0] == FLUSH.to_u8())
}

impl FlushIcrc {
    /// Records a packet that is sent next.
    #[inline]
    pub(super) fn note(&mut self, packet: &[u8]) {
        let Some(psn) = flush_psn(packet) else { return };
        if self.last.is_some_and(|last| psn.distance(last) <= 0) {
            self.repeat(psn);
        }
        self.last = Some(psn);
    }

    /// Requests are sent again from this one on.
    fn repeat(&mut self, psn: Psn) {
        let times = match self.repeated {
            Some((same, times)) if same == psn => times + 1,
            // The former one was acknowledged after its only repetition.
            Some((_, 1)) => {
                self.has_worked = true;
                1
            }
            _ => 1,
        };
        if times > 1 || !self.has_worked {
            self.is_of_rxe = !self.is_of_rxe;
            self.has_worked = false;
        }
        self.repeated = Some((psn, times));
    }

    /// The ICRC of a packet with this identification.
    #[inline]
    pub(super) fn icrc(&self, flow: &Flow, id: u16, packet: &[u8]) -> [u8; ICRC_LEN] {
        match self.is_of_rxe && packet.first() == Some(&FLUSH.to_u8()) {
            true => icrc::icrc_of_rxe_flush(flow, id, packet),
            false => icrc::icrc(flow, id, &[packet]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::roce::wire::{Addresses, Bth, Extension, Feth, Packet, Reth, Selectivity, UDP_PORT};

    const FLOW: Flow = Flow {
        addresses: Addresses::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2] },
        source_port: UDP_PORT,
        destination_port: UDP_PORT,
    };

    fn packet(operation: Operation, psn: u32) -> Vec<u8> {
        let feth = Feth { placement: Feth::PERSISTENCE, selectivity: Selectivity::Range };
        let extension = match operation {
            Operation::Flush => Extension::Flush(feth, Reth::default()),
            _ => Extension::Reth(Reth::default()),
        };
        Packet::encode_headers(&Bth::new(Opcode::Rc(operation), 7, Psn::new(psn)), &extension).to_vec()
    }

    /// Whether the packets get the ICRC of rxe.
    fn sent(form: &mut FlushIcrc, packets: &[(Operation, u32)]) -> Vec<bool> {
        let is_of_rxe = |&(operation, psn): &(Operation, u32)| {
            let packet = packet(operation, psn);
            form.note(&packet);
            let datagram = [&packet[..], &form.icrc(&FLOW, 3, &packet)].concat();
            let is_standard = icrc::check(&FLOW, &datagram) == Ok(Some(3));
            assert_ne!(is_standard, icrc::check_rxe_flush(&FLOW, &datagram) == Ok(Some(3)));
            !is_standard
        };
        packets.iter().map(is_of_rxe).collect()
    }

    #[test]
    fn a_flush_that_is_repeated_gets_the_other_icrc() {
        use Operation::{Flush, WriteOnly};
        let mut form = FlushIcrc::default();
        assert_eq!(sent(&mut form, &[(Flush, 0xff_ffff), (WriteOnly, 0), (Flush, 1)]), [false; 3]);
        // All are sent again: the form changes once.
        assert_eq!(sent(&mut form, &[(Flush, 0xff_ffff), (WriteOnly, 0), (Flush, 1)]), [true, false, true]);
        assert_eq!(sent(&mut form, &[(Flush, 0xff_ffff), (WriteOnly, 0), (Flush, 1)]), [false; 3]);
    }

    #[test]
    fn a_form_that_has_worked_is_changed_at_the_second_repetition() {
        use Operation::Flush;
        let mut form = FlushIcrc::default();
        assert_eq!(
            sent(&mut form, &[(Flush, 1), (Flush, 1), (Flush, 2), (Flush, 3)]),
            [false, true, true, true]
        );
        // A slow one, and the next one.
        assert_eq!(sent(&mut form, &[(Flush, 3), (Flush, 4)]), [true; 2]);
        // One that is so slow that it is repeated twice. The next one is repeated, since its form is wrong.
        assert_eq!(sent(&mut form, &[(Flush, 4), (Flush, 4), (Flush, 5)]), [true, false, false]);
        assert_eq!(sent(&mut form, &[(Flush, 5), (Flush, 6), (Flush, 6)]), [true; 3]);
    }
}
