//! `bowline bench`: benchmarks, compared with bare servers.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bowline_bench::{
    Pace, Report, access, compare, echo, federation, gateway, mock, relay, replicas, roaming, tools,
};

use crate::api::in_private;
use crate::cli::bench::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use crate::secrets::API_KEY;
use crate::terminal::{note, say, show};

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    if cfg!(debug_assertions) {
        note!("warning: this is a debug build; its figures are not meaningful");
    }
    let mut report = Report::new(|what| note!("{what}"));
    let json = match args.command {
        BenchCommand::Gateway { seconds, only, large, json } => {
            let length = Duration::from_secs(seconds);
            gateway::run(length, &only, large, &mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Roaming { json } => {
            roaming::run(&mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Federation { seconds, json } => {
            let length = Duration::from_secs(seconds);
            federation::run(length, &mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Tools { seconds, sessions, rate, json } => {
            let pace = Pace { parallel: sessions, rate, length: Duration::from_secs(seconds) };
            tools::run(pace, &mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Access { seconds, json } => {
            access::run(Duration::from_secs(seconds), &mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Relay { seconds, only, json } => {
            let length = Duration::from_secs(seconds);
            let measured = tokio::task::spawn_blocking(move || {
                relay::run(length, &only, &mut report).map(|()| report)
            });
            let measured = measured.await.map_err(|error| failed(error.into()))?;
            report = measured.map_err(failed)?;
            json
        }
        BenchCommand::Replicas { seconds, only, json } => {
            let length = Duration::from_secs(seconds);
            replicas::run(length, &only, &mut report).await.map_err(failed)?;
            json
        }
        BenchCommand::Compare { url, key_file, key, model, seconds, json } => {
            let key = API_KEY.secret(key.as_deref(), key_file.as_deref())?;
            if key.is_some() {
                in_private(&url)?;
            }
            let length = Duration::from_secs(seconds);
            let measured = compare::run(&url, key.as_deref(), &model, length, &mut report).await;
            measured.map_err(|error| {
                Failure::new(format!("the benchmark failed: {error:#}"))
                    .hint("check that the server is running, and check --key-file and --model")
            })?;
            json
        }
        BenchCommand::Forward { to, seal, open } if seal || open => {
            let hop = if seal { relay::Hop::Seal } else { relay::Hop::Open };
            let served = tokio::task::spawn_blocking(move || relay::hop(to, hop, ready)).await;
            served.map_err(anyhow::Error::from).flatten().map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        BenchCommand::Forward { to, .. } => {
            relay::forward(to, ready).await.map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        BenchCommand::Mock { tls } => {
            mock::serve(tls.as_deref(), ready).await.map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        BenchCommand::Echo => {
            echo::serve(ready).await.map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    match json {
        true => say!("{}", report.to_json()),
        false => show!("{}", report.to_table()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the address of a helper server on stdout.
fn ready(address: SocketAddr) {
    say!("{address}");
}

fn failed(error: anyhow::Error) -> Failure {
    Failure::new(format!("the benchmark failed: {error:#}"))
        .hint("check `ulimit -n` and that the machine is not busy, then try again")
}
