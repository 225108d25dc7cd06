//! Carries a tunnel's messages over one sealed session, until the session ends.

use std::time::Duration;

use bowline_sbrp::control::SdkCode;
use bowline_sbrp::tunnel::TunnelFault;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until};

use super::core::{Carrier, TunnelCore};
use crate::relay::reasons::{LossReason, SessionEnd};
use crate::relay::session::{Incoming, Outgoing, Session};

/// How long what was received may stay unacknowledged. Until then the peer keeps it.
const ACK_WITHIN: Duration = Duration::from_millis(500);

/// Returns why the session is of no more use.
pub(super) async fn carry(
    session: Session,
    core: &Arc<TunnelCore>,
    carrier: Carrier,
) -> SessionEnd {
    let mut session = session.into_parts();
    let ended = |end: Option<SessionEnd>| end.unwrap_or(SessionEnd::Left);
    let mut ack_at: Option<Instant> = None;
    loop {
        let is_full = loop {
            match session.outgoing.try_reserve() {
                Ok(place) => match core.next_message(carrier) {
                    Some(message) => {
                        place.send(Outgoing { session: session.id, plaintext: message.into() });
                    }
                    None => break false,
                },
                Err(TrySendError::Full(())) => break core.has_message(carrier),
                Err(TrySendError::Closed(())) => return ended(session.end.borrow().clone()),
            }
        };
        if core.is_closed() {
            return SessionEnd::Left;
        }
        if !core.is_current(carrier) {
            return SessionEnd::Here;
        }
        ack_at = match core.owes_ack() {
            true => ack_at.or_else(|| Some(Instant::now() + ACK_WITHIN)),
            false => None,
        };
        tokio::select! {
            incoming = session.inbox.recv() => {
                let mut incoming = incoming;
                loop {
                    match incoming {
                        Some(Incoming::Message(message, _room)) => {
                            if let Err(fault) = core.receive(carrier, &message.into_bytes()) {
                                tracing::debug!(%fault, "a tunnel's session is given up");
                                return SessionEnd::Lost(lost(fault));
                            }
                        }
                        // Records may be lost in either direction: the peer sees it by this one.
                        Some(Incoming::Resumed) => core.acknowledge(),
                        None => return ended(session.end.borrow().clone()),
                    }
                    if core.has_message(carrier) {
                        // An acknowledgement, or data of this end: it does not wait until all is read.
                        break;
                    }
                    match session.inbox.try_recv() {
                        Ok(more) => incoming = Some(more),
                        Err(_) => {
                            core.drained();
                            break;
                        }
                    }
                }
            }
            place = session.outgoing.reserve(), if is_full => drop(place),
            () = core.message_ready(carrier), if !is_full => {}
            () = sleep_until(ack_at.unwrap_or_else(Instant::now)), if ack_at.is_some() => {
                ack_at = None;
                core.acknowledge();
            }
        }
    }
}

fn lost(fault: TunnelFault) -> LossReason {
    match fault {
        TunnelFault::Gap => LossReason::Sdk(SdkCode::SequenceError),
        _ => LossReason::Tunnel(fault),
    }
}
