//! The parts of rows that condition themselves. If a speaker has only one clip, its conditioning is cut from that clip,
//! and the codes of that part are not targets. Otherwise the model would learn to repeat its conditioning instead of reading
//! the text.

use myxtts_data::batch::BatchInfo;
use myxtts_data::mel::FrontEnd;
use std::ops::Range;

/// The samples of each row's own clip that its conditioning was cut from, empty if it is from another clip. No
/// ranges at all if no row conditions itself.
pub fn prompts(info: &BatchInfo) -> Vec<Range<usize>> {
    if info.own_companions.is_empty() {
        return Vec::new();
    }
    let hop = FrontEnd::Conditioning.hop();
    let mut prompts = vec![0..0; info.layout.rows() as usize];
    for own in &info.own_companions {
        prompts[own.row as usize] = own.first as usize * hop..(own.first + own.rows) as usize * hop;
    }
    prompts
}
