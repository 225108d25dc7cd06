//! Applies the writes of a commit, and checks each against the rows.

use bowline_sbp::approval::{ApprovalState, ApprovalStep};
use bowline_sbp::id::{ApprovalId, TurnId};
use bowline_sbp::session::{
    AskedRow, DeviceRow, IdempotencyKey, OpenCalls, Placed, TurnRow, Write,
};
use uuid::Uuid;

use super::{Key, Planted, Rows, Store, length};

impl Store {
    pub(super) fn write(&mut self, rows: &mut Rows, write: &Write) {
        if self.past.deleted {
            return self.breaks(format!("{} after the session was deleted", write.name()));
        }
        match write {
            Write::Accept { turn, key, .. } => self.accept(rows, turn, key.as_ref()),
            Write::Start { turn, attempt } => self.start(rows, *turn, *attempt),
            Write::LeaveOpen { turn, open } => self.leave_open(rows, *turn, open),
            Write::Append { entries, advances } => self.append(rows, entries, *advances),
            // Whoever reads a session does not see it.
            Write::Spend { .. } => {}
            Write::End { turn, keyed, result } => {
                self.end(rows, *turn, *keyed, result.as_deref());
            }
            Write::Forget { turn } => self.forget(rows, *turn),
            Write::Ask(row) => self.ask(rows, row),
            Write::StepApproval { id, state, .. } => self.step_approval(rows, *id, *state),
            Write::Grant(grant) => {
                self.past.granted.insert(grant.tool.clone());
                rows.grants.push(grant.clone());
            }
            Write::Attach(row) => {
                if !self.past.epochs.insert(row.epoch) || row.epoch > rows.head.attach_epoch {
                    self.breaks(format!("the epoch {} was given out before", row.epoch));
                }
                rows.attachments.push(row.clone());
            }
            Write::Detach { epoch } => {
                let before = rows.attachments.len();
                rows.attachments.retain(|row| row.epoch != *epoch);
                if rows.attachments.len() + 1 != before {
                    self.breaks(format!("nobody is attached as {epoch}"));
                }
            }
            Write::Delivered { seq } => {
                if *seq > rows.head.delivered_seq {
                    self.breaks(format!("delivered {seq}, but {:?}", rows.head));
                }
            }
            Write::Device(row) => self.device(rows, row),
            Write::ForgetDevice { surface_id } => {
                let before = rows.devices.len();
                rows.devices.retain(|row| row.surface_id != *surface_id);
                if rows.devices.len() + 1 != before {
                    self.breaks(format!("there is no device {surface_id}"));
                }
            }
            Write::HandOff(handed) => {
                // Simulated bundles carry the position at which they were made.
                let (point, packed) = (handed.point.0, handed.packed.message_count);
                if point != packed || point > length(&rows.entries) {
                    self.breaks(format!("handed off at {point}, but the bundle is of {packed}"));
                }
                if std::mem::replace(&mut self.past.handed_off, true) {
                    self.breaks("the session was handed off twice".into());
                }
                if let Some(key) = handed.handoff.key.clone() {
                    rows.keys.push(Key { key, turn: None, result: None });
                }
            }
            Write::Delete => self.past.deleted = true,
        }
    }

    fn accept(&mut self, rows: &mut Rows, turn: &TurnRow, key: Option<&IdempotencyKey>) {
        if rows.turns.iter().any(|row| row.id == turn.id || row.place >= turn.place) {
            self.breaks(format!("out of place: {turn:?}"));
        }
        if self.past.ended.contains(&turn.id) {
            self.breaks(format!("the turn {} has ended before", turn.id));
        }
        self.past.accepted.insert(turn.id, turn.place);
        rows.turns.push(TurnRow { started: false, ..turn.clone() });
        if let Some(key) = key {
            if rows.keys.iter().any(|known| known.key.key == key.key) {
                self.breaks(format!("the key {} is taken", key.key));
            }
            rows.keys.push(Key { key: key.clone(), turn: Some(turn.id), result: None });
        }
        if turn.started {
            self.start(rows, turn.id, turn.attempt);
        }
    }

    /// Turns start in the order of their positions, and each attempt once (SBP-L2-18).
    fn start(&mut self, rows: &mut Rows, turn: TurnId, attempt: u32) {
        match rows.turns.first_mut() {
            Some(row) if row.id == turn && attempt >= row.attempt => {
                (row.started, row.attempt) = (true, attempt);
            }
            first => {
                let why = format!("{turn} starts as {attempt}, but first is {first:?}");
                self.breaks(why);
            }
        }
        if !self.past.started.insert((turn, attempt)) {
            self.breaks(format!("attempt {attempt} of {turn} was started twice"));
        }
    }

    /// Only the turn at the front has calls.
    fn leave_open(&mut self, rows: &mut Rows, turn: TurnId, open: &OpenCalls) {
        let mut open = open.clone();
        let sent = open.calls.iter_mut().filter_map(|call| call.sent.as_mut());
        for sent in sent {
            if self.planted == Some(Planted::RenamesOpenCalls) {
                sent.id = Uuid::from_u128(!sent.id.as_u128());
            }
            self.past.left_open.insert(sent.id);
        }
        match rows.turns.first_mut() {
            Some(row) if row.id == turn && row.advanced && row.attempt == open.attempt => {
                row.open_calls = Some(open);
            }
            first => {
                let why = format!("{turn} leaves calls open, but first is {first:?}");
                self.breaks(why);
            }
        }
    }

    fn append(&mut self, rows: &mut Rows, entries: &[Placed], advances: Option<TurnId>) {
        for entry in entries {
            if entry.seq != length(&rows.entries) + 1 {
                self.breaks(format!("entry {} after {}", entry.seq, rows.entries.len()));
            }
            rows.entries.push(entry.clone());
            self.past.log.push(entry.clone());
        }
        if let Some(turn) = advances {
            match rows.turns.iter_mut().find(|row| row.id == turn) {
                Some(row) => row.advanced = true,
                None => self.breaks(format!("{turn} advances and is not there")),
            }
        }
    }

    fn end(&mut self, rows: &mut Rows, turn: TurnId, keyed: bool, result: Option<&str>) {
        let row = self.remove(rows, turn);
        if row.is_some_and(|row| row.keyed != keyed) {
            self.breaks(format!("{turn} ends with the wrong keyed = {keyed}"));
        }
        if !self.past.ended.insert(turn) {
            self.breaks(format!("{turn} ended twice"));
        }
        let Some(result) = result else {
            return rows.keys.retain(|known| known.turn != Some(turn));
        };
        let Some(known) = rows.keys.iter_mut().find(|known| known.turn == Some(turn)) else {
            return self.breaks(format!("{turn} has no key"));
        };
        known.result = Some(result.to_owned());
        if self.past.results.insert(known.key.key.clone(), result.to_owned()).is_some() {
            self.breaks(format!("the key {} has two results", known.key.key));
        }
    }

    fn forget(&mut self, rows: &mut Rows, turn: TurnId) {
        self.remove(rows, turn);
        self.past.forgotten.insert(turn);
        // A retry of a removed turn starts from the beginning.
        self.past.started.retain(|(started, _)| *started != turn);
        rows.keys.retain(|known| known.turn != Some(turn));
        if rows.entries.iter().any(|entry| entry.turn_id == turn) {
            self.breaks(format!("{turn} is forgotten and in the log"));
        }
    }

    fn remove(&mut self, rows: &mut Rows, turn: TurnId) -> Option<TurnRow> {
        let at = rows.turns.iter().position(|row| row.id == turn);
        if at.is_none() {
            self.breaks(format!("{turn} ends and is not there"));
        }
        at.map(|at| rows.turns.remove(at))
    }

    fn ask(&mut self, rows: &mut Rows, row: &AskedRow) {
        let id = row.approval.approval_id;
        let call = row.approval.tool_input["call"].as_str().unwrap_or_default().to_owned();
        let is_new = row.approval.state == ApprovalState::Pending
            && self.past.asked.values().all(|known| *known != call)
            && self.past.asked.insert(id, call).is_none();
        if !is_new {
            self.breaks(format!("asked before: {row:?}"));
        }
        rows.asked.push(row.clone());
    }

    fn step_approval(&mut self, rows: &mut Rows, id: ApprovalId, state: ApprovalState) {
        let steps =
            [ApprovalStep::Approve, ApprovalStep::Deny, ApprovalStep::Expire, ApprovalStep::Use];
        let asked = rows.asked.iter_mut().find(|row| row.approval.approval_id == id);
        match asked {
            Some(row) if steps.iter().any(|s| row.approval.state.after(*s) == Some(state)) => {
                row.approval.state = state;
                self.past.approvals.entry(id).or_default().push(state);
            }
            found => {
                let why = format!("an approval cannot become {state:?}: {found:?}");
                self.breaks(why);
            }
        }
    }

    fn device(&mut self, rows: &mut Rows, row: &DeviceRow) {
        self.past.tokens.extend(row.token.map(|(hash, _)| hash));
        let before = rows.devices.iter().position(|known| known.surface_id == row.surface_id);
        let before = before.map(|at| rows.devices.swap_remove(at));
        if before.is_some_and(|before| before.delivered_seq > row.delivered_seq) {
            self.breaks(format!("a device's position moved back: {row:?}"));
        }
        rows.devices.push(row.clone());
    }
}
