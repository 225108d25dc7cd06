//! Sealing and opening whole messages, compared with the cipher alone on a prepared buffer.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use bowline_sbrp::frame::HEADER_LEN;
use bowline_sbrp::handshake::{self, AwaitAccept, Ephemeral, Trust};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::sealed::{Channel, MAX_PLAINTEXT};

use super::{issuer, middle};
use crate::report::Report;

/// Many short rounds: other load on the machine distorts only some of them.
const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(20);

pub(super) fn measure(report: &mut Report) -> Result<()> {
    report.doing("seal and open");
    let (mut client, mut daemon) = session()?;
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).map_err(|_| anyhow!("no cipher"))?;
    let key = LessSafeKey::new(key);
    // The largest plaintext is a bit less than 64 KiB: header, nonce and tag take the rest.
    for (name, length) in [("1k", 1024), ("64k", MAX_PLAINTEXT)] {
        let text = vec![0x5a; length];
        let mut buffer = text.clone();
        let (mut ours, mut raw, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let alone = rate(|| cipher_alone(&key, &mut buffer))?;
            let whole = rate(|| {
                let frame = client.sealer.seal(black_box(&text))?;
                let opened = daemon.opener.open(black_box(&frame[HEADER_LEN..]))?;
                black_box(opened);
                Ok(())
            })?;
            ratios.push(whole / alone);
            ours.push(whole * length as f64 / 1e6);
            raw.push(alone * length as f64 / 1e6);
        }
        report.ratio(&format!("seal_open_{name}_vs_raw"), middle(&mut ratios));
        report.figure(&format!("seal_open_{name}_mb_per_s"), middle(&mut ours));
        report.figure(&format!("seal_open_{name}_raw_mb_per_s"), middle(&mut raw));
    }
    Ok(())
}

/// Encrypts and decrypts in place: no copy, no allocation.
fn cipher_alone(key: &LessSafeKey, buffer: &mut [u8]) -> Result<()> {
    let nonce = || Nonce::assume_unique_for_key([1; 12]);
    let broke = |_| anyhow!("the cipher failed");
    let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), black_box(buffer));
    let tag = tag.map_err(broke)?;
    let opened = key.open_in_place_separate_tag(nonce(), Aad::empty(), tag.as_ref(), buffer);
    opened.map(|_| ()).map_err(broke)
}

/// Runs per second.
fn rate(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < ROUND {
        for _ in 0..16 {
            work()?;
        }
        count += 16;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// Both ends of a session, without a relay between them.
fn session() -> Result<(Channel, Channel)> {
    let ephemeral = |byte| Ephemeral::from_random([byte; 32].into());
    let identity = IdentitySecret::from_seed(&[3; 32]);
    let daemon = DaemonId::new("bench");
    let session = issuer::session(1)?;
    let (waiting, init) = AwaitAccept::start(session, daemon.clone(), ephemeral(1));
    let init = init.encode();
    let answer = handshake::answer(session, &init[HEADER_LEN..], &daemon, &identity, ephemeral(2))?;
    let accept = answer.accept.encode();
    let established = waiting.accept(&accept[HEADER_LEN..], &Trust::Key(identity.public()))?;
    Ok((established.channel, answer.channel))
}
