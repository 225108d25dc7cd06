//! A proxy that passes bytes on after a fixed time, in both directions: a distant network on one machine.
//!
//! It delays and limits nothing else, so what is measured behind it is what the ends make of the distance.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Bytes in flight are bounded by this many reads of at most 64 KiB, in each direction.
const IN_FLIGHT: usize = 4096;

/// Starts a proxy to `target` that runs until this process ends. Each direction takes `one_way`.
pub(super) fn start(target: SocketAddr, one_way: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            thread::spawn(move || {
                let Ok(far) = TcpStream::connect(target) else { return };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
                    let _ = (from.set_nodelay(true), to.set_nodelay(true));
                    thread::spawn(move || pass_on(from, to, one_way));
                }
            });
        }
    });
    Ok(address)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (arrived, leaving) = mpsc::sync_channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let writer = thread::spawn(move || {
        for (due, bytes) in leaving {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
        && arrived.send((Instant::now() + one_way, buffer[..count].to_vec())).is_ok()
    {}
    drop(arrived);
    let _ = writer.join();
}
