//! Number composition shared by Czech, Polish and Russian.

use super::{Form, Plural};

/// Words of numbers below a thousand.
pub(super) struct BelowThousand {
    /// 100, 200, ... at their hundreds digit.
    pub hundreds: [&'static str; 10],
    /// 20, 30, ... at their tens digit.
    pub tens: [&'static str; 10],
    /// 10 to 19.
    pub teens: [&'static str; 10],
    /// 1 to 9 before a noun of that gender.
    pub ones: fn(ones: usize, form: Form) -> &'static str,
}

impl BelowThousand {
    /// Appends the words of a number from 1 to 999; nothing for 0.
    pub fn push(&self, group: usize, form: Form, words: &mut Vec<String>) {
        let (hundreds, tens, ones) = (group / 100, group / 10 % 10, group % 10);
        if hundreds > 0 {
            words.push(self.hundreds[hundreds].into());
        }
        if tens == 1 {
            words.push(self.teens[ones].into());
            return;
        }
        if tens > 1 {
            words.push(self.tens[tens].into());
        }
        if ones > 0 {
            words.push((self.ones)(ones, form).into());
        }
    }
}

/// Ordinals below a thousand of a West Slavic language: tens and ones are both ordinals, hundreds only if nothing
/// follows them.
pub(super) struct WestOrdinals {
    /// 0th to 19th.
    pub ones: [&'static str; 20],
    /// 20th, 30th, ... at their tens digit.
    pub tens: [&'static str; 10],
    /// 100th, 200th, ... at their hundreds digit.
    pub hundreds: [&'static str; 10],
}

impl WestOrdinals {
    /// Appends the words of an ordinal from 1 to 999. `hundreds` are the cardinals used before tens and ones.
    pub fn push(&self, group: usize, hundreds: &[&str; 10], words: &mut Vec<String>) {
        let (hundred, rest) = (group / 100, group % 100);
        match (hundred, rest) {
            (_, 0) => words.push(self.hundreds[hundred].into()),
            (0, _) => {}
            _ => words.push(hundreds[hundred].into()),
        }
        match (rest / 10, rest % 10) {
            (0, 0) => {}
            (0 | 1, _) => words.push(self.ones[rest].into()),
            (tens, 0) => words.push(self.tens[tens].into()),
            (tens, ones) => words.extend([self.tens[tens].into(), self.ones[ones].into()]),
        }
    }
}

/// A number split at its last group of three digits that is not zero.
pub(super) struct LastGroup {
    /// The number without that group.
    pub head: u128,
    /// The group, 1 to 999.
    pub group: usize,
    /// Power of a thousand of the group.
    pub power: usize,
}

/// Splits off the last group of a number above zero.
pub(super) fn last_group(n: u128) -> LastGroup {
    let (mut unit, mut power) = (1u128, 0);
    // The largest numbers leave no room for another power.
    while let Some(next) = unit.checked_mul(1000).filter(|&next| n.is_multiple_of(next)) {
        unit = next;
        power += 1;
    }
    let group = (n / unit % 1000) as usize;
    LastGroup { head: n - group as u128 * unit, group, power }
}

/// Plural rule shared by Polish and Czech.
pub(super) fn west_plural(n: u128) -> Plural {
    match (n, n % 10, n % 100) {
        (1, _, _) => Plural::One,
        (_, 2..=4, h) if !(12..=14).contains(&h) => Plural::Few,
        _ => Plural::Many,
    }
}
