# Everything a person or a machine does with this repository.

CARGO ?= cargo
PYTHON_ENV := target/python
NODE_ENV := target/node
CLIENTS := crates/bowline/tests/clients
FUZZ_SECONDS ?= 60
CERTIFY_ROUNDS ?= 20
# The gateway on SQLite, on PostgreSQL with Redis, and the relay.
CERTIFIED := the_gateway_passes_all_levels the_gateway_passes_them_on_postgres the_relay_passes_the_checks
FUZZ_TARGETS := frames surface_context request_body pyjson import control_body sbrp_frame sbrp_token tunnel

.PHONY: help run replicas demo-federation build check test fmt lint unit bench soak certify-soak fuzz autobahn deny clean tools

help: ## Show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: ## Build and start the gateway with its built-in offline agent
	@echo "building (four to five minutes the first time on two cores) …"
	@$(CARGO) build --quiet --package bowline
	@PATH="$(CURDIR)/target/debug:$$PATH" bowline up

replicas: ## Three gateways on one PostgreSQL and one Redis, on this machine
	@echo "building (four to five minutes the first time on two cores) …"
	@$(CARGO) build --quiet --package bowline
	@tools/replicas target/debug/bowline

demo-federation: ## Three gateways and a tracker on this machine; a session goes round them
	@echo "building (four to five minutes the first time on two cores) …"
	@$(CARGO) build --quiet --package bowline
	@tools/demo-federation target/debug/bowline

build: ## Build the binary: target/debug/bowline
	$(CARGO) build --package bowline

check: fmt lint ## Format and lints only

test: tools fmt lint unit ## The whole check: format, lints, all tests

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy --package bowline-sbrp --all-targets --no-default-features --features rustcrypto -- -D warnings
	$(CARGO) clippy --package bowline-client --all-targets --no-default-features --features surface -- -D warnings
	$(CARGO) clippy --package bowline-client --all-targets --no-default-features --features relay -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features --package bowline-sbrp --package bowline-client

unit:
	@mkdir -p target && rm -f target/not-run
	BOWLINE_NOT_RUN="$(CURDIR)/target/not-run" BOWLINE_TEST_PYTHON="$(CURDIR)/$(PYTHON_ENV)/bin/python" \
	    BOWLINE_TEST_NODE="$(CURDIR)/$(NODE_ENV)" \
	    $(CARGO) test --workspace --all-features --no-fail-fast
	@if [ -s target/not-run ]; then \
	    echo "not run, because this machine cannot:"; sort -u target/not-run | sed 's/^/  /'; fi

bench: ## Measure the gateway against a bare server in the same run
	$(CARGO) build --release --package bowline
	target/release/bowline bench gateway

soak: ## The long versions of the crash, race, power-cut and network tests
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline --test fire -- --nocapture --test-threads=1
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline --test replicas -- --nocapture --test-threads=1
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline --test it -- --nocapture --test-threads=1 soak flood within
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline-gateway --test it -- --nocapture --test-threads=1 soak roaming_races random_requests
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline-sbrp --test it -- --nocapture model
	BOWLINE_SIM_SEEDS=100000 $(CARGO) test --release --package bowline-sbp --test it -- --nocapture session_world migration_world
	BOWLINE_SOAK=1 $(CARGO) test --release --package bowline-tracker --test soak

certify-soak: ## Certify the gateway and the relay CERTIFY_ROUNDS times in a row; stops at the first failure
	@set -e; for round in $$(seq $(CERTIFY_ROUNDS)); do \
	    echo "certified: round $$round of $(CERTIFY_ROUNDS), $$(date -u +%H:%M:%S)"; \
	    $(CARGO) test --quiet --package bowline --all-features --test it -- $(CERTIFIED) > target/certified 2>&1 \
	        && grep -q '3 passed; 0 failed' target/certified || { cat target/certified; exit 1; }; \
	done; echo "certified $(CERTIFY_ROUNDS) times in a row, $$(date -u +%Y-%m-%d)"

fuzz: ## Random bytes at all that reads what strangers send, FUZZ_SECONDS each (needs nightly Rust)
	@rustup toolchain list | grep -q nightly || { \
	    echo "error: fuzzing needs the nightly compiler" >&2; \
	    echo "hint: rustup toolchain install nightly" >&2; exit 1; }
	@command -v cargo-fuzz >/dev/null || { \
	    echo "installing cargo-fuzz (about a minute) …"; $(CARGO) install --quiet --locked cargo-fuzz; }
	@for target in $(FUZZ_TARGETS); do \
	    echo "fuzzing $$target for $(FUZZ_SECONDS) s …"; mkdir -p fuzz/corpus/$$target; \
	    (cd fuzz && $(CARGO) +nightly fuzz run $$target corpus/$$target seeds/$$target -- \
	        -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -print_funcs=0 -verbosity=0) || exit 1; \
	done

autobahn: ## The Autobahn WebSocket suite against the gateway and the relay (needs Python 2.7)
	$(CARGO) build --package bowline
	tools/autobahn gateway target/autobahn target/debug/bowline
	tools/autobahn relay target/autobahn target/debug/bowline

deny: ## Licences, bans and sources (needs cargo-deny; advisories need network)
	$(CARGO) deny check licenses bans sources

clean: ## Remove everything that was built
	$(CARGO) clean

# What the tests need beside Rust: real clients and servers for Python and Node.js, curl for the README, strace
# for bad disks, iproute2 for bad networks, PostgreSQL, Redis and dnsmasq.
tools: $(PYTHON_ENV)/.ready $(NODE_ENV)/.ready
	@tools/servers haproxy

$(PYTHON_ENV)/.ready: tools/python-env $(CLIENTS)/requirements.txt
	tools/python-env $(PYTHON_ENV) $(CLIENTS)/requirements.txt
	@touch $@

$(NODE_ENV)/.ready: tools/node-env $(CLIENTS)/package.json $(CLIENTS)/package-lock.json
	tools/node-env $(NODE_ENV) $(CLIENTS)
	@touch $@
