//! What a product is run on, and how much of that its plan depends on.

use super::{Gemm, GemmError};
use serde::{Deserialize, Serialize};

/// Device addresses of one product.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// The left matrix.
    pub a: u64,
    /// The right matrix.
    pub b: u64,
    /// What is added; not read unless the product accumulates. The same as `d` to add in place.
    pub c: u64,
    /// The result.
    pub d: u64,
    /// Bias, or where its gradient goes, if the epilogue has one.
    pub bias: Option<u64>,
    /// Input of GELU, if the epilogue has one.
    pub aux: Option<u64>,
    /// Factor of the product. In a captured step its value is fixed at capture.
    pub alpha: f32,
}

impl Operands {
    /// `d = a * b`, or `d += a * b` when the product accumulates.
    pub fn new(a: u64, b: u64, d: u64) -> Operands {
        Operands { a, b, c: d, d, bias: None, aux: None, alpha: 1.0 }
    }

    /// The same with a bias or a place for its gradient.
    pub fn bias(self, bias: u64) -> Operands {
        Operands { bias: Some(bias), ..self }
    }

    /// The same with the input of GELU.
    pub fn aux(self, aux: u64) -> Operands {
        Operands { aux: Some(aux), ..self }
    }

    pub(super) fn check(&self, gemm: &Gemm) -> Result<(), GemmError> {
        for (name, needed, given) in
            [("bias", gemm.epilogue.has_bias(), self.bias), ("aux", gemm.epilogue.has_aux(), self.aux)]
        {
            if needed && given.is_none() {
                return Err(GemmError::Operand { name, gemm: Box::new(*gemm) });
            }
        }
        Ok(())
    }
}

/// Bytes each address is a multiple of, at most 16, which is all that any kernel asks for. A shifted view (a
/// convolution's tap) may have less than its buffer, and an algorithm chosen for 16 would fault on it: so it is part
/// of the key. An operand that is not used counts as 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alignment {
    /// Of the left matrix.
    pub a: u8,
    /// Of the right matrix.
    pub b: u8,
    /// Of what is added.
    pub c: u8,
    /// Of the result.
    pub d: u8,
    /// Of the bias.
    pub bias: u8,
    /// Of the input of GELU.
    pub aux: u8,
}

impl Alignment {
    /// Of these operands as this product uses them.
    pub fn of(gemm: &Gemm, operands: &Operands) -> Alignment {
        let of = |address: u64| 1u8 << address.trailing_zeros().min(4);
        let optional = |used: bool, address: Option<u64>| if used { address.map_or(16, of) } else { 16 };
        Alignment {
            a: of(operands.a),
            b: of(operands.b),
            c: optional(gemm.accumulate, Some(operands.c)),
            d: of(operands.d),
            bias: optional(gemm.epilogue.has_bias(), operands.bias),
            aux: optional(gemm.epilogue.has_aux(), operands.aux),
        }
    }
}

/// What a plan is kept under, in memory and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The product.
    pub gemm: Gemm,
    /// How its operands are aligned.
    pub alignment: Alignment,
}

impl Key {
    /// Of a product on these operands.
    pub fn of(gemm: &Gemm, operands: &Operands) -> Key {
        Key { gemm: *gemm, alignment: Alignment::of(gemm, operands) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::gemm::{Element, Epilogue};

    #[test]
    fn a_shifted_view_has_its_own_key() {
        let gemm = Gemm::packed(4, 4, 4, Element::Bf16);
        let whole = Key::of(&gemm, &Operands::new(4096, 8192, 256));
        let shifted = Key::of(&gemm, &Operands::new(4096 + 6, 8192, 256));
        assert_eq!(whole.alignment.a, 16);
        assert_eq!(shifted.alignment.a, 2);
        assert_ne!(whole, shifted);
        // What is not read does not count.
        let unread =
            Key::of(&gemm, &Operands { c: 6, bias: Some(2), aux: Some(2), ..Operands::new(4096, 8192, 256) });
        assert_eq!(whole, unread);
    }

    #[test]
    fn a_missing_bias_is_named() {
        let gemm = Gemm { epilogue: Epilogue::Bias, ..Gemm::packed(4, 4, 4, Element::Bf16) };
        let error = Operands::new(16, 32, 64).check(&gemm).unwrap_err().to_string();
        assert!(error.contains("no bias"), "{error}");
    }
}
