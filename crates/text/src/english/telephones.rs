//! Telephone numbers in English: digit by digit, with a pause between the groups.

use super::words::one_by_one;
use crate::rewrite::{pattern, rewrite};

/// Reads North American numbers with and without area code, and any number that starts with a plus.
pub fn read(text: &str) -> String {
    let phone = pattern!(
        r"\+[0-9]{1,3}(?:[ .-][0-9]{2,4}){2,5}|\+[0-9]{7,15}",
        r"|(?:\+?[0-9]{1,3}[ .-])?\([0-9]{3}\) ?[0-9]{3}[ .-][0-9]{4}",
        r"|(?:[0-9]{1,3}[ .-])?[0-9]{3}[.-][0-9]{3}[.-][0-9]{4}",
        r"|[0-9]{3}-[0-9]{4}"
    );
    rewrite(text, phone, |found| {
        if !found.is_whole_number() || !found.is_separate() || found.before.ends_with(['$', '€', '£']) {
            return None;
        }
        let groups: Vec<&str> =
            found.text(0).split(|c: char| !c.is_ascii_digit()).filter(|group| !group.is_empty()).collect();
        // "100-2000" with round ends is a range.
        if groups.len() == 2 && groups.iter().all(|group| group.ends_with("00") && !group.starts_with('0')) {
            return None;
        }
        let plus = if found.text(0).starts_with('+') { "plus " } else { "" };
        let said: Vec<String> = groups.into_iter().map(one_by_one).collect();
        Some(format!("{plus}{}", said.join(", ")))
    })
}
