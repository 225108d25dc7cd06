//! `bowline`: the only binary. Parses the command line, runs the command and prints its error.

mod allocator;
mod api;
mod authorities;
mod backup;
mod cli;
mod commands;
mod failure;
mod local;
mod logging;
mod owner;
mod paired;
mod paths;
mod reach;
mod secrets;
mod settings;
mod shell;
mod signals;
mod spelling;
mod storage;
mod terminal;
mod via;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::relay::RelayCommand;
use crate::cli::relay_ends::DaemonCommand;
use crate::cli::tracker::TrackerCommand;
use crate::cli::{Cli, Command, GatewayCommand};
use crate::failure::Failure;
use crate::secrets::SESSION_TOKEN;
use crate::terminal::note;

fn main() -> ExitCode {
    let spelled = spelling::modern(std::env::args_os().collect());
    let cli = Cli::parse_from(spelled.args);
    terminal::be_quiet(cli.quiet);
    if let Some(hint) = spelled.hint {
        note!("{hint}");
    }
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if matches!(cli.command, Command::Connect(_) | Command::Daemon(_)) {
        // One task seals and opens all that an end of a relay sends and receives. More threads only
        // wake each other. Measured only with the relay at one thread, too: 657 MB/s instead of 481.
        threads.worker_threads(1);
    }
    let runtime = match threads.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            Failure::new(format!("cannot start threads: {error}")).print();
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        let outcome = run(cli).await;
        via::close_all().await;
        outcome
    });
    // A blocking read of stdin cannot be interrupted; its thread must not delay the exit.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => terminal::finished(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    authorities::trust(&cli)?;
    match cli.command {
        Command::Up(args) => commands::serve::up(args).await,
        Command::Gateway(GatewayCommand::Run(args)) => commands::serve::gateway(args).await,
        Command::Chat(mut args) => {
            // It draws its own lines.
            terminal::no_waiting_line();
            args.token = SESSION_TOKEN.secret(args.token.as_deref(), args.token_file.as_deref())?;
            commands::chat::run(args).await
        }
        Command::Sessions(args) => commands::sessions::run(args).await,
        Command::Export(args) => commands::export::run(args).await,
        Command::Import(args) => commands::import::run(args).await,
        Command::Inspect(args) => commands::inspect::run(args).await,
        Command::Move(args) => commands::relocate::run(args).await,
        Command::Handoff(args) => commands::handoff::run(args).await,
        Command::Fork(args) => commands::fork::run(args).await,
        Command::Lineage(args) => commands::lineage::run(args).await,
        Command::Mcp(args) => commands::mcp::run(args).await,
        Command::Control(args) => commands::control::run(args).await,
        Command::Relay(RelayCommand::Run(args)) => commands::relay::run(*args).await,
        Command::Tracker(TrackerCommand::Run(args)) => commands::tracker::run(*args).await,
        Command::Daemon(DaemonCommand::Run(args)) => commands::daemon::run(args).await,
        Command::Connect(args) => commands::connect::run(args).await,
        Command::Pair(args) => commands::pair::run(args).await,
        Command::Devices(args) => commands::devices::run(args).await,
        Command::Login(args) => commands::login::run(args).await,
        Command::Daemons(args) => commands::daemons::run(args).await,
        Command::Backup(args) => commands::backup::run(args),
        Command::Store(args) => commands::store::run(args).await,
        Command::Config(args) => commands::config::run(args),
        Command::Doctor(args) => commands::doctor::run(args).await,
        Command::Approvals(args) => commands::approvals::run(args).await,
        Command::Users(args) => commands::users::run(args).await,
        Command::Identity(args) => commands::identity::run(args).await,
        Command::Peers(command) => commands::peers::run(command).await,
        Command::Keys(args) => commands::keys::run(args).await,
        Command::Usage(args) => commands::usage::run(args).await,
        Command::Audit(args) => commands::audit::run(args).await,
        Command::Bench(args) => commands::bench::run(args).await,
        Command::Conformance(args) => commands::conformance::run(*args).await,
        Command::Completions { shell } => Ok(commands::completions::run(shell)),
        Command::Man { out } => commands::man::run(out.as_deref()),
        Command::Help { about } => commands::help::run(&about),
    }
}
