//! `bowline conformance`: checks whether a server or a relay keeps to the protocol.

mod output;
mod reach;
mod relay;
mod signed;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_conformance::{
    Check, Model, Need, Outcome, Peer, Problem, Restart, Selection, Suite, Target, Verdict,
};
use serde_json::{Value, json};
use url::Url;

use crate::cli::conformance::{ConformanceArgs, ConformanceCommand};
use crate::failure::{Failure, FailureKind};
use crate::secrets::API_KEY;
use crate::terminal::{columns, note, say, show};

pub(crate) async fn run(args: ConformanceArgs) -> Result<ExitCode, Failure> {
    match args.command {
        None => server(args).await,
        Some(ConformanceCommand::Relay(args)) => relay::run(*args).await,
        Some(ConformanceCommand::Verify(args)) => verify::run(&args),
    }
}

async fn server(args: ConformanceArgs) -> Result<ExitCode, Failure> {
    let selection = Selection::new(args.level, &args.only).map_err(|error| {
        let hint = "`bowline conformance --list --level L5` lists the checks";
        Failure::new(error).hint(hint).kind(FailureKind::Usage)
    })?;
    let Some(url) = args.url.as_ref().filter(|_| !args.list) else {
        list(selection.checks(), args.output.json);
        return Ok(ExitCode::SUCCESS);
    };
    let key = API_KEY.secret(args.key.as_deref(), args.key_file.as_deref())?;
    reach::is_allowed(url, key.is_some(), args.insecure)?;
    output::is_writable(&args.output)?;
    let signer = output::signer(&args.output)?;
    // A model of the server's own may think, and be asked by others.
    let times = if args.model.is_some() { 3 } else { 1 };
    let target = Target::new(url, key.as_deref()).map_err(Failure::new)?.patient(times);
    let model = match &args.model {
        Some(_) => None,
        None => Some(Arc::new(model(&args).await?)),
    };
    let peer = match selection.needs(Need::Peer) {
        true => Some(Arc::new(peer(&args).await?)),
        false => None,
    };
    let suite = Suite {
        target: Arc::new(target),
        model,
        model_name: args.model.clone().unwrap_or_else(|| "conformance".into()),
        restart: args.restart_command.as_deref().map(Restart::new),
        issuer: None,
        ready_within: Duration::ZERO,
        peer,
    };
    let report = suite.run(&selection, progress).await.map_err(problem)?;
    output::write(&report, &args.output, signer.as_ref())
}

/// Starts the suite's model, and says how the server is pointed at it.
async fn model(args: &ConformanceArgs) -> Result<Model, Failure> {
    let (listen, url) = (args.upstream_listen, args.upstream_url.as_ref());
    reach::is_named(listen, url, ["--upstream-listen", "--upstream-url"])?;
    let model = Model::start(listen, url.map(Url::as_str)).await.map_err(|error| {
        let what = format!("the suite's model cannot listen on {listen}: {error}");
        Failure::new(what).hint("choose another address with --upstream-listen")
    })?;
    let at = model.url();
    note!("the suite's model listens at {at}: the server under test has to use it as its upstream");
    note!("  (a Bowline: bowline gateway run --upstream {at})");
    Ok(model)
}

/// Starts the suite's gateways, and says how the server is told of them.
async fn peer(args: &ConformanceArgs) -> Result<Peer, Failure> {
    let (listen, url) = (args.peer_listen, args.peer_url.as_ref());
    reach::is_named(listen, url, ["--peer-listen", "--peer-url"])?;
    let peer = Peer::start(listen, url.map(Url::as_str)).await.map_err(|error| {
        let what = format!("the suite's gateway cannot listen on {listen}: {error}");
        Failure::new(what).hint("choose another address with --peer-listen")
    })?;
    let peers: String =
        peer.peers().iter().map(|(id, url)| format!(" --peer {id}={url}")).collect();
    note!("for L6 the server under test has to have the suite's gateways among its peers");
    note!("  (a Bowline: bowline gateway run --federation --gateway-id tested{peers})");
    let (id, url) = peer.tracker();
    note!("and to announce what it exports to the suite's tracker");
    note!("  (a Bowline: --tracker {id}={url} beside that)");
    Ok(peer)
}

fn progress(outcome: &Outcome) {
    let word = match &outcome.verdict {
        Verdict::Passed => "ok",
        Verdict::Warning(_) => "warning",
        Verdict::Failed(_) => "FAILED",
        Verdict::NotRun(_) => "not run",
    };
    let width = outcome.check.group().id_width();
    note!("{word:<8} {:<width$} {}", outcome.check.id, outcome.check.what);
}

fn problem(problem: Problem) -> Failure {
    let failure = Failure::new(&problem);
    match problem {
        Problem::Unreachable(_) => {
            failure.hint("check --url and that the server runs").kind(FailureKind::Unreachable)
        }
        Problem::OtherIssuer(url, _) => failure.hint(format!(
            "start the relay with {url} as its issuer, such as `bowline relay run --issuer {url}`; if it reaches \
             the suite at another address, name that with --issuer"
        )),
        Problem::NoKey(_) => failure
            .hint("give the server's API key in BOWLINE_API_KEY, or in a file with --key-file")
            .kind(FailureKind::Refused),
        Problem::OtherModel(url) => failure.hint(format!(
            "start the server with {url} as its upstream, or name a model of its own with --model"
        )),
    }
}

fn list(checks: &[&Check], as_json: bool) {
    if as_json {
        let checks: Vec<Value> = checks.iter().map(|check| listed(check)).collect();
        say!("{}", json!({ "checks": checks }));
        return;
    }
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let needs: String = needs(check).iter().map(|need| format!("; needs {need}")).collect();
            [check.id.to_owned(), format!("{} ({}{needs})", check.what, check.kind.word())]
        })
        .collect();
    show!("{}", columns(&rows));
}

fn listed(check: &Check) -> Value {
    json!({
        "id": check.id, "level": check.group().to_string(), "kind": check.kind.word(),
        "what": check.what, "clause": check.clause, "needs": needs(check),
    })
}

fn needs(check: &Check) -> Vec<&'static str> {
    check
        .needs
        .iter()
        .map(|need| match need {
            Need::Model => "model",
            Need::Restart => "restart",
            Need::Peer => "peer",
        })
        .collect()
}
