//! Requests and answers on their way: any order, any number of copies, any delay.

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::ReservationId;
use bowline_sbp::federation::reservation::Refusal;
use bowline_sbp::id::Seq;

use super::World;

#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    /// With the roaming token of that number.
    Reserve(usize),
    Fetch,
    Confirm,
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Reserved(Cid),
    /// The bundle ends at that entry; `true`: something else came.
    Bundle(Seq, bool),
    Confirmed,
    Released,
    Refused(Refusal),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    /// Which destination asks, or is answered.
    pub(super) destination: usize,
    pub(super) reservation: ReservationId,
    /// The process that asks, and the number of its question.
    pub(super) process: u64,
    pub(super) question: u64,
    pub(super) body: Body,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    Request(Request),
    Answer(Answer),
}

#[derive(Debug, Default)]
pub(super) struct Network {
    packets: Vec<Packet>,
    cut_off: [bool; 2],
}

impl Network {
    pub(super) fn send(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    pub(super) fn waits(&self) -> bool {
        !self.packets.is_empty()
    }

    pub(super) fn heal(&mut self) {
        self.cut_off = [false; 2];
    }
}

impl World {
    pub(super) fn partition(&mut self, at: usize) {
        let cut_off = &mut self.network.cut_off[at];
        *cut_off = !*cut_off;
        self.tally.add("cut off");
    }

    /// One packet arrives, or does not.
    pub(super) fn deliver(&mut self) {
        let Some(packet) = self.random.draw(&mut self.network.packets) else { return };
        if !self.calm {
            if self.network.cut_off[packet.destination] {
                // What is on its way may also arrive after the partition.
                if self.random.percent(50) {
                    self.network.send(packet);
                }
                return;
            }
            match self.random.below(100) {
                0..8 => return self.tally.add("lost"),
                8..25 => {
                    self.tally.add("repeated");
                    self.network.send(packet);
                }
                _ => {}
            }
        }
        match packet.body {
            Body::Request(request) => {
                if let Some(answer) = self.origin_hears(packet, request) {
                    self.network.send(Packet { body: Body::Answer(answer), ..packet });
                }
            }
            Body::Answer(answer) => self.destination_hears(packet, answer),
        }
    }
}
