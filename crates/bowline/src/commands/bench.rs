//! `bowline bench`: how fast, compared with what.
//!
//! Absolute figures say more about the machine than about the program. So each is measured
//! beside a bare server that does the same work without a gateway or a relay, in the same run, and
//! the ratio is what counts.

mod adapt;
mod bare;
mod compare;
mod disk;
mod echo;
mod followers;
mod gateway;
mod idle_sessions;
mod large;
mod latency;
mod legs;
mod load;
mod mock;
mod pace;
mod relay;
mod report;
mod roaming;
mod rounds;
mod seed;
mod surfaces;
mod tls;
mod tools;

use std::process::ExitCode;
use std::time::Duration;

use self::pace::Pace;
use self::report::Report;
use crate::cli::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use crate::terminal::note;

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    if cfg!(debug_assertions) {
        note!("warning: this is a debug build; its figures mean little");
    }
    match args.command {
        BenchCommand::Gateway { seconds, only, large, json } => {
            let mut report = Report::new(json);
            gateway::run(Duration::from_secs(seconds), &only, large, &mut report)
                .await
                .map_err(failed)?;
            report.print();
        }
        BenchCommand::Roaming { json } => {
            let mut report = Report::new(json);
            roaming::run(&mut report).await.map_err(failed)?;
            report.print();
        }
        BenchCommand::Tools { seconds, sessions, rate, json } => {
            let mut report = Report::new(json);
            let pace = Pace { parallel: sessions, rate, length: Duration::from_secs(seconds) };
            tools::run(pace, &mut report).await.map_err(failed)?;
            report.print();
        }
        BenchCommand::Relay { seconds, only, json } => {
            let mut report = Report::new(json);
            let length = Duration::from_secs(seconds);
            let report = tokio::task::spawn_blocking(move || {
                relay::run(length, &only, &mut report).map(|()| report)
            });
            let report = report.await.map_err(|error| failed(error.into()))?;
            report.map_err(failed)?.print();
        }
        BenchCommand::Forward { to } => relay::forward(to).await.map_err(failed)?,
        BenchCommand::Mock { tls } => mock::serve(tls.as_deref()).await.map_err(failed)?,
        BenchCommand::Echo => echo::serve().await.map_err(failed)?,
        BenchCommand::Compare { url, key, model, seconds, json } => {
            let mut report = Report::new(json);
            let length = Duration::from_secs(seconds);
            compare::run(&url, key.as_deref(), &model, length, &mut report).await.map_err(
                |error| {
                    Failure::new(format!("the measurement broke off: {error:#}"))
                        .hint("check that the server runs there, and see --key and --model")
                },
            )?;
            report.print();
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(error: anyhow::Error) -> Failure {
    Failure::new(format!("the measurement broke off: {error:#}"))
        .hint("check `ulimit -n` and that nothing else is busy, then try again")
}
