//! Stored float types to f32. Both 16-bit formats are subsets of f32, so widening is exact.

/// Types that weights are stored in (little-endian, as safetensors are).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    F32,
    F16,
    Bf16,
}

impl Stored {
    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Stored::F32 => 4,
            Stored::F16 | Stored::Bf16 => 2,
        }
    }
}

/// Widens `bytes` into `out`, which has one value for each element.
pub(super) fn widen(stored: Stored, bytes: &[u8], out: &mut [f32]) {
    debug_assert_eq!(bytes.len(), out.len() * stored.bytes());
    match stored {
        Stored::F32 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Stored::F16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = f16_to_f32(u16::from_le_bytes(*bytes));
            }
        }
        Stored::Bf16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
            }
        }
    }
}

/// IEEE 754 binary16 to binary32, without branches so that it vectorises: move exponent and mantissa into place, then
/// one exact multiplication by 2^112 corrects the exponent's bias and makes subnormals normal. Infinity and NaN keep a
/// full exponent.
fn f16_to_f32(half: u16) -> f32 {
    const REBIAS: f32 = f32::from_bits((112 + 127) << 23);
    let magnitude = u32::from(half & 0x7fff) << 13;
    let sign = u32::from(half & 0x8000) << 16;
    let scaled = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let special = if half & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled | special | sign)
}

/// Index of the first NaN or infinity.
pub(super) fn first_non_finite(values: &[f32]) -> Option<usize> {
    // Blocks, because a search that stops at each element does not vectorise: 46 MB in about 5 ms this way.
    const BLOCK: usize = 256;
    for (number, block) in values.chunks(BLOCK).enumerate() {
        let finite = block.iter().fold(true, |all, value| all & value.is_finite());
        if !finite {
            return block.iter().position(|value| !value.is_finite()).map(|at| number * BLOCK + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: sign, exponent with bias 15, 10 bits of mantissa.
    fn by_definition(half: u16) -> f64 {
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(half >> 10 & 0x1f);
        let mantissa = f64::from(half & 0x3ff) / 1024.0;
        match exponent {
            0 => sign * mantissa * 2f64.powi(-14),
            31 if mantissa == 0.0 => sign * f64::INFINITY,
            31 => f64::NAN,
            _ => sign * (1.0 + mantissa) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_f16_is_widened_exactly() {
        for half in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(half), by_definition(half));
            assert!(
                f64::from(ours) == theirs && ours.is_sign_negative() == theirs.is_sign_negative()
                    || ours.is_nan() && theirs.is_nan(),
                "{half:#06x}: {ours} where the definition says {theirs}"
            );
        }
    }

    #[test]
    fn bf16_is_the_upper_half_of_f32() {
        let values = [0.0f32, -0.0, 1.0, -2.5, 3.0e38, 1.0e-40, f32::INFINITY];
        for value in values {
            let upper = (value.to_bits() >> 16) as u16;
            let mut out = [0.0];
            widen(Stored::Bf16, &upper.to_le_bytes(), &mut out);
            assert_eq!(out[0].to_bits(), u32::from(upper) << 16, "{value}");
        }
    }

    #[test]
    fn finds_the_first_non_finite_in_any_block() {
        for at in [0, 1, 255, 256, 700] {
            let mut values = vec![1.0f32; 701];
            assert_eq!(first_non_finite(&values), None);
            values[at] = f32::NEG_INFINITY;
            values[700] = f32::NAN;
            assert_eq!(first_non_finite(&values), Some(at));
        }
    }
}
