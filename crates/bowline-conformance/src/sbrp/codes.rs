//! What control frames say, and what they do not.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::{SessionNotFound, SessionPaused, SessionPending};

use super::frame::{Frame, raw};
use super::peer::Peer;
use super::relay::{Pair, Relay, new_daemon, new_session, sid};
use super::run_at;
use crate::check::{Check, must, ours};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-15",
        "no control frame names a daemon, a session, a user or a token",
        "Control text carries no identifiers",
        run_at!(no_identifiers),
    ),
    ours(
        "SBRP-RELAY-15b",
        "control frames have no text",
        "Control text: empty in production",
        run_at!(no_text),
    ),
    must(
        "SBRP-RELAY-16",
        "a daemon that speaks in a session which is not there is told session_not_found",
        "0x0301 session_not_found, S",
        run_at!(unknown_session),
    ),
    ours(
        "SBRP-RELAY-16b",
        "and stays connected: its other sessions go on",
        "towards a daemon, session_not_found and session_expired for one session are sent without \
         closing the socket (settled by us)",
        run_at!(daemon_stays),
    ),
];

/// The texts of many control frames, and what none of them may contain.
async fn texts(relay: &Relay<'_>) -> Result<(Vec<Vec<u8>>, Vec<String>), Stop> {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let session = client.session;
    let mut other = relay.paired(&id, &mut daemon).await?;
    other.send(&Frame::signal(other.session, [1, 0])).await?;
    // Which code it is, other checks look at.
    while let Some(Ok(_)) = other.next_within(A_WHILE).await? {}
    let mut broken = relay.paired(&id, &mut daemon).await?;
    broken.send_bytes(raw(0x99, 0, 7, b"")).await?;
    while let Some(Ok(_)) = broken.next_within(A_WHILE).await? {}
    // The daemon hears of their ends before it hears of the next, which leaves as well: of the two clients that
    // were left, a relay could tell the wrong one that its daemon is away.
    relay.paired(&id, &mut daemon).await?.leave().await;
    daemon.next_within(A_WHILE).await?;
    let mut texts = std::mem::take(&mut daemon.texts);
    daemon.leave().await;
    client.is_told(SessionPaused, session).await?;
    let _back = relay.daemon(&id).await?;
    client.is_told(SessionPending, session).await?;
    let (away, theirs) = (new_daemon(), new_session());
    let mut early = relay.client(&away, theirs).await?;
    while let Some(Ok(_)) = early.next_within(A_WHILE).await? {}
    let ends: [&mut Peer; 4] = [&mut other, &mut broken, &mut client, &mut early];
    texts.extend(ends.into_iter().flat_map(|peer| std::mem::take(&mut peer.texts)));
    let mut names = vec![id, away, "user-of-".to_owned()];
    for session in [session, theirs, other.session, broken.session] {
        let hex = format!("{session:x}");
        names.extend([sid(session), hex, session.to_string()]);
    }
    Ok((texts, names))
}

async fn no_identifiers(relay: &Relay<'_>) -> Ended {
    let (texts, names) = texts(relay).await?;
    for text in &texts {
        let shown = String::from_utf8_lossy(text);
        let lower = shown.to_lowercase();
        if let Some(name) = names.iter().find(|name| lower.contains(&name.to_lowercase())) {
            let expected = "control frames whose text names nobody";
            let came = format!("the text {shown:?}, which has {name:?} in it");
            return Err(Stop::broken("what makes the relay send codes", expected, came));
        }
    }
    Ok(())
}

async fn no_text(relay: &Relay<'_>) -> Ended {
    let (texts, _) = texts(relay).await?;
    match texts.iter().find(|text| !text.is_empty()) {
        None => Ok(()),
        Some(text) => {
            let came = format!("the text {:?}", String::from_utf8_lossy(text));
            Err(Stop::broken("what makes the relay send codes", "no text", came))
        }
    }
}

async fn unknown_session(relay: &Relay<'_>) -> Ended {
    let mut daemon = relay.daemon(&new_daemon()).await?;
    let session = new_session();
    daemon.send(&Frame::data(session, "who is there?")).await?;
    daemon.is_told(SessionNotFound, session).await
}

async fn daemon_stays(relay: &Relay<'_>) -> Ended {
    let mut pair = relay.pair().await?;
    let session = new_session();
    for frame in [Frame::data(session, "who is there?"), Frame::signal(session, [1, 0])] {
        pair.daemon.send(&frame).await?;
        pair.daemon.is_told(SessionNotFound, session).await?;
    }
    pair.works().await
}

/// How long the end of a refused connection is waited for: whether it comes, other checks look at.
const A_WHILE: Duration = Duration::from_secs(2);
