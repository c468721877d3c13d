#![no_main]
//! Pickles, and everything that can be asked of what comes out.

use libfuzzer_sys::fuzz_target;
use myxtts_model::weights::pickle::Pickle;

fuzz_target!(|bytes: &[u8]| {
    // Most inputs would end at the first two bytes otherwise.
    let bytes = [b"\x80\x02", bytes].concat();
    if let Ok(pickle) = Pickle::parse(&bytes) {
        let root = pickle.root();
        let _ = (root.class(), root.describe(), root.get("model"), root.attribute("config"));
        for (key, value) in root.entries() {
            let _ = (key.as_str(), value.as_tensor().map(|tensor| (tensor.count(), tensor.is_contiguous())));
        }
    }
});
