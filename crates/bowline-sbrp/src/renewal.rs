//! When to renew a token (SBRP-DAEMON-07). Pure: times are passed in.

/// When to renew a token that is valid from `issued` to `expires`: with a quarter of its lifetime
/// left, which leaves time for several attempts.
pub fn renew_at(issued: u64, expires: u64) -> u64 {
    expires - expires.saturating_sub(issued) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbrp_daemon_07_tokens_are_renewed_before_they_expire() {
        assert_eq!(renew_at(1_000, 4_600), 3_700);
        assert_eq!(renew_at(5, 5), 5);
        assert_eq!(renew_at(9, 5), 5, "a token from the future is renewed when it ends");
    }
}
