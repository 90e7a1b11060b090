use super::reference;
use super::support::{Cases, Guarded, Random, lengths};
use crate::{DOT_MAX_ERROR, Isa, cosine, dot, l2_normalize, squared_l2};

#[test]
fn products_and_distances_are_accurate_for_every_length() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths() {
            let mut random = Random(n as u64);
            let (a, b) = (Guarded::new(&random.units(n)), Guarded::new(&random.units(n)));
            let describe = |what: &str| format!("{} {what} of {n}", isa.name());
            let magnitude: f64 = a.iter().zip(b.iter()).map(|(a, b)| f64::from((a * b).abs())).sum();
            cases.close(&[dot(isa, &a, &b)], &[reference::dot(&a, &b)], DOT_MAX_ERROR * magnitude, || describe("dot"));
            let squared: f64 = a.iter().zip(b.iter()).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            cases.close(&[squared_l2(isa, &a, &b)], &[squared], DOT_MAX_ERROR * squared, || describe("squared_l2"));
            let norm = |v: &[f32]| reference::dot(v, v).sqrt().max(1e-12);
            let expected = reference::dot(&a, &b) / norm(&a) / norm(&b);
            cases.close(&[cosine(isa, &a, &b)], &[expected], DOT_MAX_ERROR, || describe("cosine"));
            let mut unit = Guarded::new(&a);
            l2_normalize(isa, &mut unit);
            let expected: Vec<f64> = a.iter().map(|value| f64::from(*value) / norm(&a)).collect();
            cases.close(&unit, &expected, DOT_MAX_ERROR, || describe("l2_normalize"));
        }
    }
}

#[test]
fn zero_vectors_stay_zero_and_nan_stays_nan() {
    for isa in Isa::available() {
        let mut zeros = [0.0; 20];
        l2_normalize(isa, &mut zeros);
        assert_eq!(zeros, [0.0; 20]);
        assert_eq!(cosine(isa, &[0.0; 20], &[1.0; 20]), 0.0);
        // As PyTorch's F.normalize: the norm counts as 1e-12.
        let mut tiny = [1e-20f32];
        l2_normalize(isa, &mut tiny);
        assert!((tiny[0] - 1e-8).abs() < 1e-14, "{}", tiny[0]);
        for at in 0..20 {
            let mut values = [1.0; 20];
            values[at] = f32::NAN;
            assert!(dot(isa, &values, &[1.0; 20]).is_nan());
            assert!(cosine(isa, &values, &[1.0; 20]).is_nan());
            assert!(squared_l2(isa, &values, &[1.0; 20]).is_nan());
            l2_normalize(isa, &mut values);
            assert!(values.iter().all(|value| value.is_nan()));
        }
    }
}

#[test]
#[should_panic(expected = "different lengths")]
fn vectors_of_different_lengths_are_refused() {
    dot(Isa::best(), &[1.0, 2.0], &[1.0]);
}
