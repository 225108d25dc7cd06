//! Arguments of `bowline bench`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Benchmark a gateway on this machine, writing to disk, with a load generator beside it
    #[command(after_help = "\
Each figure is compared with a bare server that does the same work without a gateway, in the same
run on the same cores. Use a release build.

Examples:
  bowline bench gateway
  bowline bench gateway --json --seconds 5
  bowline bench gateway --only attach,drain
  bowline bench gateway --only ready --large")]
    Gateway {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Run only these parts: align, ready, http, stream, latency, attach, drain, followers,
        /// turns, idle, idle-sessions
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Also measure the start on a database of this size, written first [default: 1000]
        #[arg(long, value_name = "MB", num_args = 0..=1, default_missing_value = "1000")]
        large: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark export, import and fork of long sessions, and the content id against Python's
    #[command(after_help = "Example:\n  bowline bench roaming --json")]
    Roaming {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark sessions that move between two gateways, bundles, and a tracker's look-ups
    #[command(after_help = "\
import_1000_ms is an import of 1,000 messages from the other gateway. move_gap_ms is the time from asking for a move until
the other gateway has answered a turn: longer than the time in which neither takes one. bundle_vs_static compares the
fetch of a bundle with that of the same bytes as a file of a plain server. The tracker runs on one core. Use a release
build.

Examples:
  bowline bench federation
  bowline bench federation --json --seconds 10")]
    Federation {
        /// How many seconds the tracker is asked
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark tool calls to attached devices, and answers adapted to small devices
    #[command(after_help = "\
A model calls a tool of an attached device, which answers at once. tool_call_* is the round trip as
the gateway sees it, from sending the call to receiving the answer; tool_call_vs_echo compares it
with a bare WebSocket echo of the same bytes at the same rate. tool_step_* is the whole step seen
from outside, from the model's server to the device and back: it includes two flushes to disk and
four trips over loopback. tool_step_memory_* is the same with an in-memory store; fsync_* is one
flush alone.

Calls begin at fixed times, so that latency is measured and not the machine's limit. Use a release
build.

Examples:
  bowline bench tools
  bowline bench tools --json --seconds 20
  bowline bench tools --sessions 10 --rate 50")]
    Tools {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Attached devices, each with its own session
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        sessions: u32,
        /// Calls per second, over all sessions
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rate: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what keys cost, and what users get done while others flood the gateway
    #[command(after_help = "\
The flood: 2,000 connections that never read, 200 bodies that do not end, 100 wrong keys a second.
Needs a limit of at least 3,000 open files. Use a release build on a quiet machine.

Examples:
  bowline bench access
  bowline bench access --json --seconds 20")]
    Access {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark a relay on one core against a bare TCP forwarder and nginx
    #[command(after_help = "\
The server under test runs on one core, the load generator on another. Needs taskset and prlimit
(util-linux), a limit of at least 10,200 open files, and nginx if it is to be compared. Use a
release build on a quiet machine.

Examples:
  bowline bench relay
  bowline bench relay --json --seconds 10
  bowline bench relay --only frames,latency")]
    Relay {
        /// How many seconds each server is under load, in total
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Run only these parts: frames, latency, idle, handshakes, seal, reach, tunnel
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark two gateways on PostgreSQL and Redis, which it starts itself
    #[command(after_help = "\
Needs the programs of PostgreSQL and Redis; on Debian: apt-get install postgresql redis-server

Examples:
  bowline bench replicas
  bowline bench replicas --json --only turns,takeover")]
    Replicas {
        /// How many seconds the load runs, in total
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=120))]
        seconds: u64,
        /// Run only these parts: turns, tokens, tools, takeover, restart, copy
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The forwarder that the relay is compared with
    #[command(hide = true)]
    Forward {
        /// The address to forward connections to
        #[arg(long)]
        to: SocketAddr,
        /// Seal what is forwarded, and open what comes back
        #[arg(long, conflicts_with = "open")]
        seal: bool,
        /// Open what is forwarded, and seal what comes back
        #[arg(long)]
        open: bool,
    },
    /// The mock model server that the other benchmarks use
    #[command(hide = true)]
    Mock {
        /// Serve TLS with a new self-signed certificate, which is written to this file
        #[arg(long, value_name = "FILE")]
        tls: Option<PathBuf>,
    },
    /// The bare WebSocket echo that tool calls are compared with
    #[command(hide = true)]
    Echo,
    /// Run the same load against any OpenAI-compatible or SBP server
    #[command(
        after_help = "Example:\n  bowline bench compare --url http://127.0.0.1:9000 --model gpt-4o"
    )]
    Compare {
        /// The server's address, with or without /v1
        #[arg(long, value_name = "URL")]
        url: url::Url,
        /// A file with the server's API key, if it needs one [default: the key in BOWLINE_API_KEY]
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The server's API key: an old spelling of --key-file
        #[arg(long, value_name = "KEY", hide = true)]
        key: Option<String>,
        /// The model to request
        #[arg(long, default_value = "bench")]
        model: String,
        /// How many seconds each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
