//! Plain Rust, for targets without an implementation of their own.

pub(crate) type Quad = [f32; 4];

/// Without the instruction, `f32::mul_add` would be a library call.
const FUSED: bool = cfg!(target_feature = "fma");

/// A function that does the same to every lane.
macro_rules! lanewise {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        pub(crate) fn $name($($arg: Quad),*) -> Quad {
            let mut out = [0.0; 4];
            for (i, out) in out.iter_mut().enumerate() {
                $(let $arg = $arg[i];)*
                *out = $body;
            }
            out
        }
    };
}

lanewise!(add(a, b) a + b);
lanewise!(sub(a, b) a - b);
lanewise!(mul(a, b) a * b);
lanewise!(div(a, b) a / b);
lanewise!(mul_add(a, b, c) if FUSED { a.mul_add(b, c) } else { a * b + c });
lanewise!(min(a, b) if a < b { a } else { b });
lanewise!(max(a, b) if a > b { a } else { b });
lanewise!(max_propagating(a, b) if a.is_nan() || a > b { a } else { b });
lanewise!(abs(a) a.abs());
lanewise!(copysign(a, sign) a.copysign(sign));
lanewise!(low_bits_to_exponent(a) f32::from_bits(a.to_bits() << 23));

#[inline(always)]
pub(crate) fn splat(value: f32) -> Quad {
    [value; 4]
}

#[inline(always)]
pub(crate) fn lookup16(table: &[f32; 16], index: Quad) -> Quad {
    let mut out = index;
    for value in &mut out {
        *value = table[(value.to_bits() & 15) as usize];
    }
    out
}

#[inline(always)]
pub(crate) fn reduce_add(a: Quad) -> f32 {
    (a[0] + a[2]) + (a[1] + a[3])
}

#[inline(always)]
pub(crate) fn reduce_max(a: Quad) -> f32 {
    let mut max = a[0];
    for value in &a[1..] {
        max = if max > *value { max } else { *value };
    }
    max
}
