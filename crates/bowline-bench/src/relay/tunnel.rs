//! How fast one TCP connection is through a tunnel: beside a TCP forwarder and `ssh -L` on this machine,
//! and from far away.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ends::Tunnelled;
use super::hops::Hops;
use super::server::MeasuredServer;
use super::ssh::Ssh;
use super::{ROUNDS, delay};
use crate::report::Report;
use crate::rounds::{middle, ratio};

/// Half of the way from device to relay, or from relay to daemon: a round trip takes 100 ms.
const ONE_WAY: Duration = Duration::from_millis(25);

pub(super) fn measure(length: Duration, report: &mut Report) -> Result<()> {
    report.doing("a tunnel");
    let tunnel = Tunnelled::start(Ok)?;
    let forwarder = MeasuredServer::forwarder_anywhere()?;
    let hops = Hops::start()?;
    let ssh = Ssh::start()?;
    if ssh.is_none() {
        report.note("warning: no sshd here, so nothing is compared with ssh");
    }
    let round = length / (4 * ROUNDS as u32);
    let (mut ours, mut tcp, mut least, mut by_ssh) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(both_ways(tunnel.port, &tunnel.behind, round)?);
        tcp.push(both_ways(forwarder.address, &forwarder.behind, round)?);
        least.push(both_ways(hops.port, &hops.behind, round)?);
        if let Some(ssh) = &ssh {
            by_ssh.push(both_ways(ssh.port, &ssh.behind, round)?);
        }
    }
    report.ratio("tunnel_vs_tcp", ratio(&ours, &tcp));
    // What the cipher and the hops leave of the forwarder's bytes, and what the tunnel makes of that.
    report.ratio("hops_vs_tcp", ratio(&least, &tcp));
    report.ratio("tunnel_vs_hops", ratio(&ours, &least));
    report.ratio_if("tunnel_vs_ssh", ssh.is_some().then(|| ratio(&ours, &by_ssh)));
    report.figure("tunnel_mb_per_s", middle(&mut ours));
    report.figure("tunnel_tcp_mb_per_s", middle(&mut tcp));
    report.figure("tunnel_hops_mb_per_s", middle(&mut least));
    if ssh.is_some() {
        report.figure("tunnel_ssh_mb_per_s", middle(&mut by_ssh));
    }
    report.figure("tunnel_ends_mb", tunnel.memory()? / 1e6);
    drop(tunnel);

    report.doing("a tunnel with a round trip of 100 ms");
    let far = Tunnelled::start(|relay| delay::start(relay, ONE_WAY))?;
    let mut rates = Vec::new();
    for _ in 0..2 {
        for way in [Way::Up, Way::Down] {
            rates.push(one_way(far.port, &far.behind, way, length / 2)?);
        }
    }
    report.figure("tunnel_100ms_mb_per_s", middle(&mut rates));
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Megabytes per second, half of the time in each direction.
fn both_ways(port: SocketAddr, behind: &TcpListener, length: Duration) -> Result<f64> {
    let up = one_way(port, behind, Way::Up, length / 2)?;
    let down = one_way(port, behind, Way::Down, length / 2)?;
    Ok((up + down) / 2.0)
}

/// Megabytes per second of a new connection, from its first byte to its last.
fn one_way(port: SocketAddr, behind: &TcpListener, way: Way, length: Duration) -> Result<f64> {
    let near = TcpStream::connect(port)?;
    let (far, _) = behind.accept()?;
    let (sender, mut receiver) = if way == Way::Up { (near, far) } else { (far, near) };
    let begun = Instant::now();
    let sending = thread::spawn(move || {
        let piece = vec![7; 256 << 10];
        while begun.elapsed() < length {
            (&sender).write_all(&piece)?;
        }
        sender.shutdown(std::net::Shutdown::Write)
    });
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        match receiver.read(&mut buffer)? {
            0 => break,
            count => bytes += count,
        }
    }
    let took = begun.elapsed();
    sending.join().ok().context("a thread of the generator panicked")??;
    Ok(bytes as f64 / 1e6 / took.as_secs_f64())
}
