#!/usr/bin/env node
// Runs `bowline conformance` with the binary of the package for this platform.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const name = `sbp-conformance-${process.platform}-${process.arch}`;

function binary() {
  if (process.env.SBP_CONFORMANCE_BINARY) return process.env.SBP_CONFORMANCE_BINARY;
  try {
    return require.resolve(`${name}/bin/bowline`);
  } catch {
    console.error(`error: there is no binary for ${process.platform}-${process.arch}: ${name} is not installed`);
    console.error('');
    console.error('hint: install without --omit=optional; or build Bowline, and set SBP_CONFORMANCE_BINARY to its binary');
    process.exit(1);
  }
}

const child = spawn(binary(), ['conformance', ...process.argv.slice(2)], { stdio: 'inherit' });
child.on('error', (error) => {
  console.error(`error: the binary does not run: ${error.message}`);
  process.exit(1);
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
// As a shell says it.
child.on('exit', (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
