//! What is compared takes turns, and the middle of the rounds counts: a machine is not as fast at one
//! moment as at the next.

/// The middle of the rounds' ratios: what slowed one round slowed both.
pub(super) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    middle(&mut ratios)
}

pub(super) fn middle(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_ratio_counts() {
        assert_eq!(ratio(&[1.0, 9.0, 4.0], &[2.0, 1.0, 4.0]), 1.0);
        assert!(ratio(&[], &[]).is_nan());
    }
}
