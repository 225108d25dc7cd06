//! Everything from outside: real sockets, real clients, real tokens.

mod relay;
