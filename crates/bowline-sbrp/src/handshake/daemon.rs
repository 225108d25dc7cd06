//! The daemon's side: answer a HandshakeInit at once, or refuse it.

use bytes::Bytes;

use super::ephemeral::Ephemeral;
use super::transcript::{ChannelBinding, Transcript};
use super::{HandshakeError, INIT_LEN};
use crate::frame::Frame;
use crate::id::{DaemonId, SessionId};
use crate::identity::IdentitySecret;
use crate::sealed::{Channel, Direction};

/// The daemon's result of a handshake: send the frame, keep the channel.
#[derive(Debug)]
#[non_exhaustive]
pub struct HandshakeAnswer {
    /// The frame to send.
    pub accept: Frame,
    /// Encrypts and decrypts the session's messages.
    pub channel: Channel,
    /// What a proof inside the session is bound to.
    pub binding: ChannelBinding,
}

/// Answers the payload of a HandshakeInit. The ephemeral key is consumed on success and on failure.
pub fn answer(
    session: SessionId,
    init: &[u8],
    daemon: &DaemonId,
    identity: &IdentitySecret,
    ephemeral: Ephemeral,
) -> Result<HandshakeAnswer, HandshakeError> {
    let client_ephemeral: [u8; INIT_LEN] =
        init.try_into().map_err(|_| HandshakeError::Malformed)?;
    let daemon_ephemeral = ephemeral.public();
    let transcript = Transcript { daemon, client_ephemeral, daemon_ephemeral };
    let shared = ephemeral.agree(&client_ephemeral).ok_or(HandshakeError::WeakEphemeral)?;
    let signature = identity.sign(&transcript.signed());
    let channel = transcript.keys(&shared, &signature).channel(session, Direction::DaemonToClient);
    let public = identity.public();
    let payload = [public.as_bytes().as_slice(), &daemon_ephemeral, &signature].concat();
    Ok(HandshakeAnswer {
        accept: Frame::HandshakeAccept { session, payload: Bytes::from(payload) },
        channel,
        binding: transcript.binding(&signature),
    })
}
