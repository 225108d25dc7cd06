//! The simulated tools: planning their calls, and planning them again after a restart.

use std::time::Duration;

use bowline_sbp::approval::Approval;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::id::{ApprovalId, TurnId};
use bowline_sbp::message::EntryKind;
use bowline_sbp::session::{Now, Permission, Placed, PlannedCall, Replanned, Work};
use bowline_sbp::surface::SurfaceTool;
use serde_json::json;

use super::store::session_id;
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) on_device: bool,
    /// The tool is idempotent.
    pub(super) again: bool,
    /// The tool needs an approval.
    pub(super) asks: bool,
}

const fn tool(name: &'static str, on_device: bool, again: bool, asks: bool) -> Tool {
    Tool { name, on_device, again, asks }
}

pub(super) const TOOLS: [Tool; 8] = [
    tool("search", false, true, false),
    tool("pay", false, false, false),
    tool("sign", false, false, true),
    tool("wipe", false, true, true),
    tool("photo", true, true, false),
    tool("unlock", true, false, false),
    tool("camera", true, false, true),
    tool("screen", true, true, true),
];

pub(super) fn named(name: &str) -> &'static Tool {
    TOOLS.iter().find(|tool| tool.name == name).unwrap()
}

/// The tools that a simulated device declares.
pub(super) fn of_devices() -> Vec<SurfaceTool> {
    let offered = |tool: &Tool| SurfaceTool::named(tool.name);
    TOOLS.iter().filter(|tool| tool.on_device).map(offered).collect()
}

/// Plans one call, as a driver would. The input identifies the model's call. `replanned`: after a restart.
pub(super) fn plan(
    random: &mut Random,
    turn: TurnId,
    n: u32,
    call: ToolCall,
    replanned: bool,
    now: Now,
) -> PlannedCall {
    let tool = named(&call.name);
    let input = json!({ "call": call.id });
    let seconds = |random: &mut Random| Duration::from_secs(1 + random.below(30) as u64);
    let approval = Approval {
        expires_at: now.at + seconds(random),
        ..Approval::new(
            ApprovalId(random.uuid()),
            session_id(),
            turn,
            call.name.clone(),
            input.clone(),
            now.at,
        )
    };
    let work = match tool {
        Tool { on_device: true, .. } => Work::Device {
            tool: call.name.clone(),
            input,
            patience: seconds(random),
            wait: if random.percent(30) { Duration::ZERO } else { seconds(random) },
        },
        Tool { on_device: false, .. } => Work::Task { tool: call.name.clone(), input },
    };
    PlannedCall {
        id: random.uuid(),
        n,
        call,
        work,
        permission: tool.asks.then(|| Permission { replanned, ..Permission::of(approval) }),
        again: tool.again,
    }
}

/// Plans the last calls of a turn again after a restart, except those with a result in the log.
pub(super) fn replan(random: &mut Random, turn: TurnId, log: &[Placed], now: Now) -> Replanned {
    let its = |entry: &&Placed| entry.turn_id == turn && entry.entry.kind == EntryKind::Action;
    let actions: Vec<_> = log.iter().filter(its).collect();
    let calls_in = |entry: &Placed| ToolCall::all_of(&entry.entry.message);
    let rounds = actions.iter().filter(|entry| !calls_in(entry).is_empty()).count();
    let last = actions.iter().rposition(|entry| !calls_in(entry).is_empty()).unwrap();
    let answered: Vec<_> = actions[last..]
        .iter()
        .filter_map(|entry| ToolCall::answered_by(&entry.entry.message))
        .collect();
    let open = calls_in(actions[last]).into_iter().zip(0..);
    let calls = open
        .filter(|(call, _)| !answered.contains(&call.id))
        .map(|(call, n)| plan(random, turn, n, call, true, now))
        .collect();
    let rounds = u32::try_from(rounds).unwrap();
    Replanned { seq: actions[last].seq, calls, rounds, spent_usd: 0.25 * f64::from(rounds) }
}
