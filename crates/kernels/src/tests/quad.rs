//! The four-value vectors of this target against the plain Rust that stands for them elsewhere.

use super::support::{Cases, Random};
use crate::simd::quad::{self, array, from_array, to_array};

type Function<V> = fn(V, V, V) -> V;

/// Each function of this target with its twin, as functions of three vectors, and whether it may round once where the
/// twin rounds twice.
const ALL: [(&str, Function<quad::Quad>, Function<array::Quad>, bool); 10] = [
    ("add", |a, b, _| quad::add(a, b), |a, b, _| array::add(a, b), false),
    ("sub", |a, b, _| quad::sub(a, b), |a, b, _| array::sub(a, b), false),
    ("mul", |a, b, _| quad::mul(a, b), |a, b, _| array::mul(a, b), false),
    ("div", |a, b, _| quad::div(a, b), |a, b, _| array::div(a, b), false),
    ("mul_add", quad::mul_add, array::mul_add, true),
    ("min", |a, b, _| quad::min(a, b), |a, b, _| array::min(a, b), false),
    ("max", |a, b, _| quad::max(a, b), |a, b, _| array::max(a, b), false),
    ("abs", |a, _, _| quad::abs(a), |a, _, _| array::abs(a), false),
    ("copysign", |a, b, _| quad::copysign(a, b), |a, b, _| array::copysign(a, b), false),
    ("low_bits_to_exponent", |a, _, _| quad::low_bits_to_exponent(a), |a, _, _| array::low_bits_to_exponent(a), false),
];

#[test]
fn this_target_and_plain_rust_agree() {
    let mut cases = Cases::default();
    let mut random = Random(11);
    for _ in 0..2000 {
        let mut vector = || std::array::from_fn::<f32, 4, _>(|_| random.unit() * 100.0);
        let (a, b, c) = (vector(), vector(), vector());
        for (name, native, plain, fused) in ALL {
            let actual = to_array(native(from_array(a), from_array(b), from_array(c)));
            let expected = plain(a, b, c);
            for i in 0..4 {
                let same = actual[i].to_bits() == expected[i].to_bits();
                // The product of two numbers below 100 is rounded by at most half of 2^-10.
                let close = fused && (actual[i] - expected[i]).abs() <= 1e-3;
                cases.check(same || close, || format!("{name} {a:?} {b:?} {c:?}: {actual:?} not {expected:?}"));
            }
        }
    }
}

#[test]
fn reductions_and_lookups_agree() {
    let mut cases = Cases::default();
    let mut random = Random(12);
    let table: [f32; 16] = std::array::from_fn(|i| i as f32 * 1.5);
    for _ in 0..2000 {
        let a: [f32; 4] = std::array::from_fn(|_| f32::from_bits(random.bits() as u32));
        let actual = to_array(quad::lookup16(&table, from_array(a)));
        let expected = array::lookup16(&table, a);
        cases.check(actual == expected, || format!("lookup16 {a:?}: {actual:?} not {expected:?}"));
        let a: [f32; 4] = std::array::from_fn(|_| random.unit());
        let (actual, expected) = (quad::reduce_max(from_array(a)), array::reduce_max(a));
        cases.check(actual == expected, || format!("reduce_max {a:?}: {actual} not {expected}"));
        let (actual, expected) = (quad::reduce_add(from_array(a)), array::reduce_add(a));
        cases.check((actual - expected).abs() < 1e-6, || format!("reduce_add {a:?}: {actual} not {expected}"));
    }
}

/// A NaN in the second operand is kept; `max_propagating` keeps it in either.
#[test]
fn nan_is_kept_where_it_is_promised() {
    let (nan, one) = (f32::NAN, 1.0);
    let of =
        |f: fn(quad::Quad, quad::Quad) -> quad::Quad, a: f32, b: f32| to_array(f(quad::splat(a), quad::splat(b)))[0];
    let plain = |f: fn(array::Quad, array::Quad) -> array::Quad, a: f32, b: f32| f([a; 4], [b; 4])[0];
    assert!(of(quad::min, one, nan).is_nan() && plain(array::min, one, nan).is_nan());
    assert!(of(quad::max, one, nan).is_nan() && plain(array::max, one, nan).is_nan());
    for (a, b) in [(one, nan), (nan, one), (nan, nan)] {
        assert!(of(quad::max_propagating, a, b).is_nan(), "{a} {b}");
        assert!(plain(array::max_propagating, a, b).is_nan(), "{a} {b}");
    }
    assert_eq!(of(quad::max_propagating, -one, one), one);
    assert_eq!(plain(array::max_propagating, one, -one), one);
    assert!(to_array(quad::abs(quad::splat(nan)))[0].is_nan());
    assert_eq!(array::splat(2.0), [2.0; 4]);
}
