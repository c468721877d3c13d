//! Number composition shared by German and Dutch: one word below a million, ones before tens.

use super::triplets;

/// Words from which numbers of a Germanic language are built.
pub(super) struct Germanic {
    /// 0 to 19.
    pub ones: [&'static str; 20],
    /// 20, 30, ... at their tens digit.
    pub tens: [&'static str; 10],
    /// A lone hundred: "einhundert".
    pub one_hundred: &'static str,
    /// The hundred after its count: "hundert".
    pub hundred: &'static str,
    /// One before "and" and tens: "ein" in "einundzwanzig".
    pub one_before_tens: &'static str,
    /// "and" between ones and tens, which depends on the ones.
    pub and: fn(ones: usize) -> &'static str,
}

impl Germanic {
    /// A number from 1 to 999; empty for 0.
    pub fn below_thousand(&self, n: usize) -> String {
        let (hundreds, rest) = (n / 100, n % 100);
        let mut said = match hundreds {
            0 => String::new(),
            1 => self.one_hundred.into(),
            _ => format!("{}{}", self.ones[hundreds], self.hundred),
        };
        match (rest / 10, rest % 10) {
            (0, 0) => {}
            (0 | 1, _) => said += self.ones[rest],
            (tens, 0) => said += self.tens[tens],
            (tens, ones) => {
                said += if ones == 1 { self.one_before_tens } else { self.ones[ones] };
                said += (self.and)(ones);
                said += self.tens[tens];
            }
        }
        said
    }

    /// A number from 1100 to 1999 by its hundreds, as years are read: "neunzehnhundertneunundneunzig".
    pub fn by_hundreds(&self, n: u128) -> Option<String> {
        if !(1100..2000).contains(&n) {
            return None;
        }
        let n = n as usize;
        Some(format!("{}{}{}", self.ones[n / 100], self.hundred, self.below_thousand(n % 100)))
    }

    /// A whole number. `thousands` reads a group of thousands with its scale word; `large` does the same for millions and
    /// up, and returns `None` if the language has no scale word for that power of a thousand.
    pub fn compose(
        &self,
        n: u128,
        thousands: impl Fn(usize) -> String,
        large: impl Fn(usize, usize) -> Option<String>,
    ) -> Option<String> {
        if n == 0 {
            return Some(self.ones[0].into());
        }
        let (mut parts, mut small) = (Vec::new(), String::new());
        for (group, power) in triplets(n) {
            match power {
                0 => small += &self.below_thousand(group),
                1 => small += &thousands(group),
                _ => parts.push(large(group, power)?),
            }
        }
        if !small.is_empty() {
            parts.push(small);
        }
        Some(parts.join(" "))
    }
}
