//! The payload of a close frame (5.5.1, 7.4).

use super::fault::Fault;

/// The close code in a close frame's payload; none if the payload is empty.
pub(crate) fn read(payload: &[u8]) -> Result<Option<u16>, Fault> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() { Ok(None) } else { Err(Fault::CloseCode) };
    };
    let code = u16::from_be_bytes(*code);
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => {}
        _ => return Err(Fault::CloseCode),
    }
    std::str::from_utf8(reason).map_err(|_| Fault::CloseReason)?;
    Ok(Some(code))
}
