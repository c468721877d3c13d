//! Operands of a product, and the properties of them that its plan depends on.

use super::{Gemm, GemmError};
use serde::{Deserialize, Serialize};

/// Device addresses of one product.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// Address of the left matrix.
    pub a: u64,
    /// Address of the right matrix.
    pub b: u64,
    /// Address of the addend, read only if the product accumulates. Equal to `d` to accumulate in place.
    pub c: u64,
    /// Address of the output.
    pub d: u64,
    /// Address of the bias or of its gradient, if the epilogue has one.
    pub bias: Option<u64>,
    /// Address of the input of GELU, if the epilogue has one.
    pub aux: Option<u64>,
    /// Factor of the product. A captured step keeps the value it had at capture.
    pub alpha: f32,
}

impl Operands {
    /// `d = a * b`, or `d += a * b` if the product accumulates.
    pub fn new(a: u64, b: u64, d: u64) -> Operands {
        Operands { a, b, c: d, d, bias: None, aux: None, alpha: 1.0 }
    }

    /// Sets the bias, or the destination of its gradient.
    pub fn bias(self, bias: u64) -> Operands {
        Operands { bias: Some(bias), ..self }
    }

    /// Sets the input of GELU.
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

/// Alignment of each address in bytes, at most 16, which is the most any kernel requires. A shifted view (a
/// convolution's tap) may have less alignment than its buffer, and an algorithm chosen for 16 would fault on it, so
/// alignment is part of the key. An unused operand counts as 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alignment {
    /// Alignment of the left matrix.
    pub a: u8,
    /// Alignment of the right matrix.
    pub b: u8,
    /// Alignment of the addend.
    pub c: u8,
    /// Alignment of the output.
    pub d: u8,
    /// Alignment of the bias.
    pub bias: u8,
    /// Alignment of the input of GELU.
    pub aux: u8,
}

impl Alignment {
    /// Alignment of the operands as the product uses them.
    pub fn new(gemm: &Gemm, operands: &Operands) -> Alignment {
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

/// Key of a plan, in memory and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The product.
    pub gemm: Gemm,
    /// Alignment of its operands.
    pub alignment: Alignment,
}

impl Key {
    /// The key of a product with these operands.
    pub fn new(gemm: &Gemm, operands: &Operands) -> Key {
        Key { gemm: *gemm, alignment: Alignment::new(gemm, operands) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::gemm::{Element, Epilogue};

    #[test]
    fn a_shifted_view_has_its_own_key() {
        let gemm = Gemm::packed(4, 4, 4, Element::Bf16);
        let whole = Key::new(&gemm, &Operands::new(4096, 8192, 256));
        let shifted = Key::new(&gemm, &Operands::new(4096 + 6, 8192, 256));
        assert_eq!(whole.alignment.a, 16);
        assert_eq!(shifted.alignment.a, 2);
        assert_ne!(whole, shifted);
        // Operands that are not read do not count.
        let unread = Key::new(
            &gemm,
            &Operands { c: 6, bias: Some(2), aux: Some(2), ..Operands::new(4096, 8192, 256) },
        );
        assert_eq!(whole, unread);
    }

    #[test]
    fn a_missing_bias_is_named() {
        let gemm = Gemm { epilogue: Epilogue::Bias, ..Gemm::packed(4, 4, 4, Element::Bf16) };
        let error = Operands::new(16, 32, 64).check(&gemm).unwrap_err().to_string();
        assert!(error.contains("no bias"), "{error}");
    }
}
