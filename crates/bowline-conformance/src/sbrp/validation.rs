//! The rules that a frame can break, and the order in which they count.

use bowline_sbrp::control::ControlCode::{
    self, DisallowedSender, InvalidFrameType, InvalidSessionId, MalformedFrame, PayloadTooLarge,
};
use tokio_tungstenite::tungstenite::Message;

use super::frame::{LONGEST, raw};
use super::relay::{Pair, Relay};
use super::run_at;
use crate::check::{Check, must};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-RELAY-05",
        "a message without a whole header is malformed_frame",
        "header (malformed_frame); Control(malformed_frame, SessionID=0)",
        run_at!(header),
    ),
    must(
        "SBRP-RELAY-05b",
        "missing and trailing bytes are malformed_frame",
        "One WebSocket message holds exactly one frame: trailing or missing bytes are malformed_frame",
        run_at!(length),
    ),
    must(
        "SBRP-RELAY-05c",
        "a text message is malformed_frame",
        "Text messages are malformed_frame, too",
        run_at!(text),
    ),
    must(
        "SBRP-RELAY-05d",
        "a payload over 65,536 bytes is payload_too_large",
        "size (payload_too_large)",
        run_at!(size),
    ),
    must(
        "SBRP-RELAY-05e",
        "an unknown frame type is invalid_frame_type",
        "type (invalid_frame_type)",
        run_at!(kind),
    ),
    must(
        "SBRP-RELAY-05f",
        "a session id where none belongs, or none where one does, is invalid_session_id",
        "session id (invalid_session_id, SID 0)",
        run_at!(session),
    ),
    must(
        "SBRP-RELAY-05g",
        "of several broken rules, the first in the protocol's order is told",
        "first hit wins: header -> size -> type -> session id -> direction",
        run_at!(order),
    ),
    must(
        "SBRP-RELAY-05h",
        "no message, however broken, does anything to the sessions of others",
        "header -> size -> type -> session id -> direction, each with its code",
        run_at!(hostile),
    ),
];

/// Each of these messages, of a client of its own, is refused with this code.
async fn refused(relay: &Relay<'_>, cases: &[(Vec<u8>, ControlCode, u64)]) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    let all = async {
        for (message, code, session) in cases {
            let mut client = relay.paired(&id, &mut daemon).await?;
            client.send_bytes(message.clone()).await?;
            client.is_refused(*code, *session).await?;
        }
        Ok::<(), Stop>(())
    };
    client.beside(all).await?;
    Pair { id, daemon, client }.works().await
}

async fn header(relay: &Relay<'_>) -> Ended {
    let whole = raw(0x03, 0, 7, b"");
    refused(
        relay,
        &[
            (Vec::new(), MalformedFrame, 0),
            (vec![0x03], MalformedFrame, 0),
            (whole[..12].to_vec(), MalformedFrame, 0),
        ],
    )
    .await
}

async fn length(relay: &Relay<'_>) -> Ended {
    refused(
        relay,
        &[
            (raw(0x03, 2, 7, b"x"), MalformedFrame, 0),
            (raw(0x03, 0, 7, b"x"), MalformedFrame, 0),
            (raw(0x03, LONGEST as u32, 7, b""), MalformedFrame, 0),
        ],
    )
    .await
}

async fn text(relay: &Relay<'_>) -> Ended {
    let Pair { id, mut daemon, mut client } = relay.pair().await?;
    client.send_message(Message::text("{\"type\":\"PING\"}")).await?;
    client.is_refused(MalformedFrame, 0).await?;
    relay.paired(&id, &mut daemon).await.map(drop)
}

async fn size(relay: &Relay<'_>) -> Ended {
    let too_long = LONGEST as u32 + 1;
    refused(
        relay,
        &[
            (raw(0x03, too_long, 7, &vec![0; LONGEST + 1]), PayloadTooLarge, 0),
            (raw(0x03, u32::MAX, 7, b""), PayloadTooLarge, 0),
        ],
    )
    .await
}

async fn kind(relay: &Relay<'_>) -> Ended {
    let cases: Vec<_> = [0x00, 0x05, 0x0f, 0x12, 0x21, 0x7f, 0xff]
        .into_iter()
        .map(|kind| (raw(kind, 1, 7, b"x"), InvalidFrameType, 0))
        .collect();
    refused(relay, &cases).await
}

async fn session(relay: &Relay<'_>) -> Ended {
    let cases = [
        (raw(0x01, 32, 0, &[0; 32]), InvalidSessionId, 0),
        (raw(0x03, 1, 0, b"x"), InvalidSessionId, 0),
        (raw(0x10, 0, 7, b""), InvalidSessionId, 0),
        (raw(0x11, 0, 7, b""), InvalidSessionId, 0),
    ];
    refused(relay, &cases).await?;
    let Pair { mut daemon, .. } = relay.pair().await?;
    daemon.send_bytes(raw(0x04, 2, 0, &[0, 0])).await?;
    daemon.is_refused(InvalidSessionId, 0).await
}

/// Each rule with all later ones broken as well.
async fn order(relay: &Relay<'_>) -> Ended {
    let too_long = LONGEST as u32 + 1;
    refused(
        relay,
        &[
            (vec![0x99; 12], MalformedFrame, 0),
            (raw(0x99, too_long, 0, b"x"), PayloadTooLarge, 0),
            (raw(0x99, 1, 0, b"x"), InvalidFrameType, 0),
            (raw(0x04, 2, 0, &[0, 0]), InvalidSessionId, 0),
            (raw(0x02, 1, 0, b"x"), InvalidSessionId, 0),
            // The header's session id, though it is not the client's.
            (raw(0x04, 2, 9, &[0, 0]), DisallowedSender, 9),
        ],
    )
    .await
}

/// The other pair is there all the time, and its session is named by what is sent.
async fn hostile(relay: &Relay<'_>) -> Ended {
    let mut pair = relay.pair().await?;
    let session = pair.client.session;
    pair.daemon.beside(pair.client.beside(broken_messages(relay, session))).await?;
    pair.works().await
}

/// Bytes by a fixed rule: what was sent in one run is sent in the next.
async fn broken_messages(relay: &Relay<'_>, session: u64) -> Ended {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let Pair { id, mut daemon, client: _client } = relay.pair().await?;
    for number in 0..HOSTILE {
        let mut client = relay.paired(&id, &mut daemon).await?;
        let length = (next() % 64) as u32;
        let mut message: Vec<u8> = (0..length).map(|_| next() as u8).collect();
        // Half of them are whole frames, of each type, in a session of somebody else.
        if number % 2 == 0 {
            let kind = (number / 2) as u8;
            message = raw(kind, length, session, &message);
        }
        client.send_bytes(message).await?;
        client.leave().await;
    }
    Ok(())
}

const HOSTILE: usize = 40;
