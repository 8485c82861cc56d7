// SPDX-License-Identifier: BSD-3-Clause
//! The network in one direction: packets on their way.

use std::collections::VecDeque;

use crate::roce::wire::{Extension, Packet, Syndrome};
use crate::units::Micros;

struct Flight {
    due: Micros,
    is_late: bool,
    packet: Vec<u8>,
}

/// Packets of one side on their way to the other one.
#[derive(Default)]
pub(super) struct Network {
    flights: Vec<Flight>,
    /// Packets that have arrived and were not taken.
    pub arrived: VecDeque<Vec<u8>>,
}

impl Network {
    pub(super) fn begin(&mut self) {
        self.flights.clear();
        self.arrived.clear();
    }

    /// A packet departs; it may arrive from this time on. `is_late`: behind others, or a second time.
    pub(super) fn depart(&mut self, due: Micros, is_late: bool, packet: Vec<u8>) {
        self.flights.push(Flight { due, is_late, packet });
    }

    /// Packets that may arrive now.
    pub(super) fn arrivals(&self, now: Micros) -> usize {
        self.flights.iter().filter(|flight| flight.due <= now).count()
    }

    /// Whether one of those up to the `which`-th is a NAK.
    pub(super) fn has_nak(&self, now: Micros, which: usize) -> bool {
        let is_nak = |packet: &[u8]| match Packet::parse(packet).unwrap().extension {
            Extension::Aeth(aeth) => !matches!(aeth.syndrome, Syndrome::Ack { .. }),
            _ => false,
        };
        let mut due = self.flights.iter().filter(|flight| flight.due <= now).take(which + 1);
        due.any(|flight| is_nak(&flight.packet))
    }

    /// Takes the `which`-th of those, and whether it is late.
    pub(super) fn take(&mut self, now: Micros, which: usize) -> Option<(Vec<u8>, bool)> {
        let mut due = self.flights.iter().enumerate().filter(|(_, flight)| flight.due <= now);
        let (index, _) = due.nth(which)?;
        let flight = self.flights.remove(index);
        Some((flight.packet, flight.is_late))
    }

    /// When the next packet that is delayed may arrive.
    pub(super) fn next(&self, now: Micros) -> Option<Micros> {
        self.flights.iter().map(|flight| flight.due).filter(|due| *due > now).min()
    }
}
