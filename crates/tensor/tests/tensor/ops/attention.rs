use crate::suite::{Build, Case};
use myxtts_tensor::Value;
use myxtts_tensor::ops::attention::{Mask, Order};

fn lengths(b: &mut Build<'_>, batch: usize, keys: usize) -> Value {
    // A length of zero is allowed: its queries see no keys.
    let data = (0..batch).map(|_| b.size(0, keys) as i32).collect();
    b.integers([batch], data)
}

fn key_mask(b: &mut Build<'_>, batch: usize, keys: usize) -> Value {
    let data = (0..batch * keys).map(|_| i32::from(b.random.uniform() < 0.7)).collect();
    b.integers([batch, keys], data)
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("attention, causal", |b| {
            let (batch, time, heads) = (b.size(1, 2), b.size(1, 40), b.size(1, 3));
            let qkv = b.variable([batch, time, 3 * heads * 32]);
            let mask = Mask { causal: true, ..Mask::default() };
            vec![b.tape.self_attention(qkv, heads, Order::Parts, mask)]
        }),
        Case::new("attention, causal, heads of 64, several tiles", |b| {
            let (batch, time) = (2, b.size(130, 200));
            let qkv = b.variable([batch, time, 3 * 64]);
            let mask = Mask { causal: true, ..Mask::default() };
            vec![b.tape.self_attention(qkv, 1, Order::Parts, mask)]
        })
        .rounds(2),
        Case::new("attention, full, by heads, with lengths", |b| {
            let (batch, time, heads) = (3, b.size(2, 30), 2);
            let qkv = b.variable([batch, time, 3 * heads * 64]);
            let lengths = lengths(b, batch, time);
            let mask = Mask { lengths: Some(lengths), ..Mask::default() };
            vec![b.tape.self_attention(qkv, heads, Order::Heads, mask)]
        }),
        Case::new("attention, causal with masked keys", |b| {
            let (batch, time, heads) = (2, b.size(2, 30), 2);
            let qkv = b.variable([batch, time, 3 * heads * 32]);
            let keys = key_mask(b, batch, time);
            let mask = Mask { causal: true, keys: Some(keys), ..Mask::default() };
            vec![b.tape.self_attention(qkv, heads, Order::Parts, mask)]
        }),
        Case::new("attention to another sequence", |b| {
            let (batch, queries, keys, heads) = (b.size(1, 3), b.size(1, 20), b.size(1, 40), 2);
            let (q, kv) =
                (b.variable([batch, queries, heads * 32]), b.variable([batch, keys, 2 * heads * 32]));
            let (lengths, key_mask) = (lengths(b, batch, keys), key_mask(b, batch, keys));
            let mask = Mask { lengths: Some(lengths), keys: Some(key_mask), ..Mask::default() };
            vec![b.tape.cross_attention(q, kv, heads, mask)]
        }),
    ]
}
