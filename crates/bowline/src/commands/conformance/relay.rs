//! `bowline conformance relay`: checks whether a relay keeps to SBRP.

use std::process::ExitCode;

use bowline_conformance::{Issuer, Selection, Suite, Target};
use url::Url;

use super::{list, output, problem, progress, reach};
use crate::cli::conformance::RelayConformanceArgs;
use crate::failure::{Failure, FailureKind};
use crate::terminal::note;

pub(super) async fn run(args: RelayConformanceArgs) -> Result<ExitCode, Failure> {
    let selection = Selection::relay(&args.only).map_err(|error| {
        let hint = "`bowline conformance relay --list` lists the checks";
        Failure::new(error).hint(hint).kind(FailureKind::Usage)
    })?;
    let Some(url) = args.url.as_ref().filter(|_| !args.list) else {
        list(selection.checks(), args.output.json);
        return Ok(ExitCode::SUCCESS);
    };
    if !matches!(url.scheme(), "ws" | "wss" | "http" | "https") {
        return Err(Failure::new("a relay's address begins with ws:// or wss://")
            .hint("such as --url ws://127.0.0.1:8090/relay")
            .kind(FailureKind::Usage));
    }
    // No key is sent: the tokens are of the suite's own control plane.
    reach::is_allowed(&as_http(url), false, false)?;
    output::is_writable(&args.output)?;
    let signer = output::signer(&args.output)?;
    let target = Target::relay(url).map_err(Failure::new)?;
    let suite = Suite::relay(target, issuer(&args).await?);
    let report = suite.run(&selection, progress).await.map_err(problem)?;
    output::write(&report, &args.output, signer.as_ref())
}

/// The same address for HTTP, whose rules about TLS hold here, too.
fn as_http(url: &Url) -> Url {
    let http = url.as_str().replacen("ws", "http", usize::from(url.scheme().starts_with("ws")));
    Url::parse(&http).unwrap_or_else(|_| url.clone())
}

/// Starts the suite's control plane, and says how the relay is pointed at it.
async fn issuer(args: &RelayConformanceArgs) -> Result<Issuer, Failure> {
    let listen = args.jwks_listen;
    reach::is_named(listen, args.issuer.as_ref(), ["--jwks-listen", "--issuer"])?;
    let url = args.issuer.as_ref().map(Url::as_str);
    let issuer = Issuer::start(listen, url).await.map_err(|error| {
        let what = format!("the suite's control plane cannot listen on {listen}: {error}");
        Failure::new(what).hint("choose another address with --jwks-listen")
    })?;
    let at = issuer.url();
    note!("the suite's control plane is {at}: the relay under test has to accept its tokens");
    note!("  (a Bowline: bowline relay run --issuer {at})");
    note!(
        "  (another: keys at {at}/.well-known/jwks.json, `iss` is {at}, `aud` is sideband-relay)"
    );
    Ok(issuer)
}
