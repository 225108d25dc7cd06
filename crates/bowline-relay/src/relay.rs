//! The server that forwards sealed frames between clients and daemons.
