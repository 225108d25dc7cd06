//! Who owns which daemon, and the tokens that say so.
