//! What `bowline up` prints when it is ready: where the gateway is, and commands to try.
//!
//! Invariant: the commands work as they are printed, in any directory. So they carry the flags that
//! this gateway needs, quoted for a shell. A key is read from its file and never printed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bowline_net::certificate::ServedCertificate;
use bowline_net::listen;
use bowline_net::loopback::is_loopback_url;

use super::relay_link::LinkState;
use crate::shell::{quote, quote_path};
use crate::{local, paths};

/// What to say of a certificate that curl takes and `bowline chat` does not.
const IS_AUTHORITY: &str = "\
`bowline chat` and other commands refuse this certificate, because it is marked as an authority
(CA:TRUE). Make one that is not: openssl req -x509 … -addext basicConstraints=critical,CA:FALSE";

/// What to say of a gateway that other machines reach in the clear.
const NO_TLS: &str = "\
from another machine `bowline chat` and other commands need https://: through a proxy, a tunnel
(ssh -L), or with --tls-cert and --tls-key here";

/// Where a gateway can be reached.
#[derive(Debug)]
pub(super) struct Addresses {
    /// From this machine.
    pub(super) here: String,
    /// From other machines; none if it listens on loopback.
    pub(super) elsewhere: Vec<String>,
    /// A self-signed certificate, which clients have to be told to trust.
    self_signed: Option<PathBuf>,
    /// It is marked as an authority: commands of this program refuse it even then.
    is_authority: bool,
}

impl Addresses {
    /// `cert` is the certificate file, if the gateway serves TLS.
    pub(super) fn new(bound: SocketAddr, cert: Option<&Path>) -> Self {
        let served = cert.and_then(ServedCertificate::read);
        let scheme = if cert.is_some() { "https" } else { "http" };
        let url = |address: SocketAddr| {
            format!("{scheme}://{}", host(served.as_ref(), address).unwrap_or(address.to_string()))
        };
        let mut elsewhere: Vec<_> = listen::from_elsewhere(bound).into_iter().map(&url).collect();
        elsewhere.dedup();
        let self_signed = served.as_ref().is_some_and(ServedCertificate::is_self_signed);
        Self {
            here: url(listen::from_here(bound)),
            elsewhere,
            self_signed: cert.filter(|_| self_signed).map(Path::to_owned),
            is_authority: served.is_some_and(|served| served.is_authority()),
        }
    }
}

/// A host and port that the certificate is valid for; `None` if the address itself is, or nothing is
/// known.
fn host(served: Option<&ServedCertificate>, address: SocketAddr) -> Option<String> {
    let served = served.filter(|served| !served.covers(&address.ip().to_string()))?;
    let local = address.ip().is_loopback() && served.covers("localhost");
    let name = if local { "localhost".to_owned() } else { served.first_name()? };
    Some(format!("{name}:{}", address.port()))
}

/// What there is to say.
#[derive(Debug)]
pub(super) struct Welcome<'a> {
    pub(super) addresses: &'a Addresses,
    pub(super) data: &'a Path,
    /// The database and the bus, if the sessions are not in the data folder.
    pub(super) database: Option<(&'a str, &'a str)>,
    /// Whether no API key is needed.
    pub(super) is_open: bool,
    pub(super) recovered: u64,
    /// The default model's name, and what to say about it.
    pub(super) model: &'a str,
    pub(super) about_model: String,
    /// How it does at the relay, if it has one.
    pub(super) reach: Option<&'a LinkState>,
}

impl Welcome<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let Addresses { here, elsewhere, .. } = self.addresses;
        let who = match (self.is_open, elsewhere.is_empty()) {
            (true, true) => "only this machine can reach it; no key needed",
            (true, false) => "ANYONE who can reach it can use it: no key is set",
            (false, _) => "an API key is needed",
        };
        writeln!(to, "bowline {} is ready\n", env!("CARGO_PKG_VERSION"))?;
        writeln!(to, "  gateway  {here}  ({who})")?;
        for url in elsewhere.iter().filter(|url| *url != here) {
            writeln!(to, "           {url}")?;
        }
        writeln!(to, "  data     {}", paths::short(self.data))?;
        match self.database {
            Some((database, "none")) => {
                writeln!(to, "  store    {database}, for this gateway alone: there is no bus")?;
            }
            Some((database, bus)) => {
                writeln!(to, "  store    {database}; the bus to other gateways is {bus}")?;
            }
            None => {}
        }
        writeln!(to, "  model    {}", self.about_model)?;
        writeln!(to, "  docs     {here}/docs")?;
        if let Some(reach) = self.reach {
            writeln!(to, "  relay    {reach}")?;
        }
        if self.recovered > 0 {
            writeln!(to, "  resumed  {} unfinished turns", self.recovered)?;
        }
        writeln!(to, "\ntry, in another terminal:")?;
        if self.addresses.is_authority {
            writeln!(to, "  {}", self.curl())?;
            writeln!(to, "\n{IS_AUTHORITY}")?;
        } else {
            writeln!(to, "  {}", self.command("chat"))?;
            writeln!(to, "  {}", self.command("sessions list"))?;
            writeln!(to, "  {}", self.curl())?;
        }
        if let Some(LinkState::Online { .. }) = self.reach {
            writeln!(to, "\nto pair a phone or another machine:")?;
            writeln!(to, "  {}", self.command("pair"))?;
        }
        if elsewhere.iter().any(|url| url.starts_with("http:")) {
            writeln!(to, "\n{NO_TLS}")?;
        } else if !elsewhere.is_empty() && !self.addresses.is_authority {
            let key = if self.is_open { "" } else { ", with an API key in BOWLINE_API_KEY" };
            writeln!(to, "\nfrom another machine{key}:")?;
            for url in elsewhere {
                writeln!(to, "  {}bowline chat --url {}", self.trust("cert.pem"), quote(url))?;
            }
            if self.addresses.self_signed.is_some() {
                writeln!(to, "  (cert.pem is a copy of this gateway's certificate)")?;
            }
        }
        writeln!(to, "\nCtrl-C stops it; sessions are kept.")
    }

    /// A command of this program on this machine. The data folder says where the gateway is.
    fn command(&self, words: &str) -> String {
        let cert = self.addresses.self_signed.as_deref().map(quote_path).unwrap_or_default();
        let mut command = format!("{}bowline {words}", self.trust(&cert));
        if self.data != paths::data() {
            command += &format!(" --data {}", quote_path(self.data));
        }
        // The folder's key is sent by itself only to loopback (see `Api::new`).
        let here = self.addresses.here.parse().is_ok_and(|url| is_loopback_url(&url));
        if !self.is_open && !here {
            command += &format!(" --key-file {}", quote_path(&local::key_file(self.data)));
        }
        command
    }

    fn curl(&self) -> String {
        let mut curl = format!("curl -s {}/v1/chat/completions", self.addresses.here);
        if let Some(cert) = &self.addresses.self_signed {
            curl += &format!(" --cacert {}", quote_path(cert));
        }
        if !self.is_open {
            let file = quote_path(&local::key_file(self.data));
            curl += &format!(" \\\n    -H \"Authorization: Bearer $(cat {file})\"");
        }
        let body = serde_json::json!({
            "model": self.model, "sbp": {},
            "messages": [{ "role": "user", "content": "count to 5" }],
        });
        curl += " \\\n    -H 'Content-Type: application/json' \\\n    -d ";
        curl + &quote(&body.to_string())
    }

    /// The variable that makes commands trust a self-signed certificate.
    fn trust(&self, cert: &str) -> String {
        match self.addresses.self_signed {
            Some(_) => format!("SSL_CERT_FILE={cert} "),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome(addresses: &Addresses, is_open: bool) -> String {
        let welcome = Welcome {
            addresses,
            data: Path::new("/srv/my data"),
            database: None,
            is_open,
            recovered: 0,
            model: "m",
            about_model: "m".into(),
            reach: None,
        };
        welcome.text().replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
    }

    #[test]
    fn commands_carry_the_folder_and_the_key_by_its_file() {
        let addresses = Addresses::new("127.0.0.1:8080".parse().unwrap(), None);
        insta::assert_snapshot!(welcome(&addresses, false), @r#"
        bowline [VERSION] is ready

          gateway  http://127.0.0.1:8080  (an API key is needed)
          data     /srv/my data
          model    m
          docs     http://127.0.0.1:8080/docs

        try, in another terminal:
          bowline chat --data '/srv/my data'
          bowline sessions list --data '/srv/my data'
          curl -s http://127.0.0.1:8080/v1/chat/completions \
            -H "Authorization: Bearer $(cat '/srv/my data/local.key')" \
            -H 'Content-Type: application/json' \
            -d '{"model":"m","sbp":{},"messages":[{"role":"user","content":"count to 5"}]}'

        Ctrl-C stops it; sessions are kept.
        "#);
    }

    #[test]
    fn every_address_of_the_machine_is_named_once() {
        let addresses = Addresses {
            here: "https://127.0.0.1:8080".into(),
            elsewhere: vec!["https://192.0.2.1:8080".into(), "https://[2001:db8::1]:8080".into()],
            self_signed: None,
            is_authority: false,
        };
        insta::assert_snapshot!(welcome(&addresses, false), @r#"
        bowline [VERSION] is ready

          gateway  https://127.0.0.1:8080  (an API key is needed)
                   https://192.0.2.1:8080
                   https://[2001:db8::1]:8080
          data     /srv/my data
          model    m
          docs     https://127.0.0.1:8080/docs

        try, in another terminal:
          bowline chat --data '/srv/my data'
          bowline sessions list --data '/srv/my data'
          curl -s https://127.0.0.1:8080/v1/chat/completions \
            -H "Authorization: Bearer $(cat '/srv/my data/local.key')" \
            -H 'Content-Type: application/json' \
            -d '{"model":"m","sbp":{},"messages":[{"role":"user","content":"count to 5"}]}'

        from another machine, with an API key in BOWLINE_API_KEY:
          bowline chat --url https://192.0.2.1:8080
          bowline chat --url 'https://[2001:db8::1]:8080'

        Ctrl-C stops it; sessions are kept.
        "#);
    }

    #[test]
    fn no_command_is_printed_that_would_refuse_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cert.pem");
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        std::fs::write(&path, made.pem()).unwrap();
        let text = welcome(&Addresses::new("0.0.0.0:8443".parse().unwrap(), Some(&path)), false);
        assert!(text.contains("curl -s https://") && text.contains("CA:TRUE"), "{text}");
        assert!(!text.contains("bowline chat --") && !text.contains("sessions list"), "{text}");
    }

    #[test]
    fn a_self_signed_certificate_is_named_where_it_has_to_be_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let cert = folder.path().join("cert.pem");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, made.cert.pem()).unwrap();
        let addresses = Addresses::new("127.0.0.1:8443".parse().unwrap(), Some(&cert));
        let text = welcome(&addresses, true);
        let text = text.replace(&folder.path().display().to_string(), "[FOLDER]");
        insta::assert_snapshot!(text, @r#"
        bowline [VERSION] is ready

          gateway  https://localhost:8443  (only this machine can reach it; no key needed)
          data     /srv/my data
          model    m
          docs     https://localhost:8443/docs

        try, in another terminal:
          SSL_CERT_FILE=[FOLDER]/cert.pem bowline chat --data '/srv/my data'
          SSL_CERT_FILE=[FOLDER]/cert.pem bowline sessions list --data '/srv/my data'
          curl -s https://localhost:8443/v1/chat/completions --cacert [FOLDER]/cert.pem \
            -H 'Content-Type: application/json' \
            -d '{"model":"m","sbp":{},"messages":[{"role":"user","content":"count to 5"}]}'

        Ctrl-C stops it; sessions are kept.
        "#);
    }

    #[test]
    fn an_address_that_is_not_loopback_gets_the_key_only_if_it_is_named() {
        let addresses = Addresses::new("192.0.2.1:8080".parse().unwrap(), None);
        assert_eq!(addresses.elsewhere, ["http://192.0.2.1:8080"]);
        let text = welcome(&addresses, false);
        let chat = "bowline chat --data '/srv/my data' --key-file '/srv/my data/local.key'\n";
        assert!(text.contains(chat), "{text}");
        // And no command for other machines that would refuse to talk in the clear.
        assert!(text.contains(NO_TLS) && !text.contains("--url"), "{text}");
    }
}
