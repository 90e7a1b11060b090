use super::support::{Cases, Guarded, Random};
use crate::{Isa, ROPE_MAX_ERROR, rotate_rows};

#[test]
fn every_pair_is_turned_by_its_angle() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for half in (0..=40).chain([64, 128]) {
            let (rows, heads) = (3, 2);
            let mut random = Random(half as u64);
            let head_ld = 2 * half + 3;
            let x_ld = heads * head_ld + 1;
            let before = random.units((rows - 1) * x_ld + head_ld + 2 * half);
            let turns: Vec<f64> = random.units(rows * half).iter().map(|turn| f64::from(*turn) * 9.0).collect();
            let angles: Vec<f32> = (0..rows)
                .flat_map(|r| {
                    let row = &turns[r * half..][..half];
                    row.iter().map(|a| a.cos() as f32).chain(row.iter().map(|a| a.sin() as f32)).collect::<Vec<_>>()
                })
                .collect();
            let (mut x, angles) = (Guarded::new(&before), Guarded::new(&angles));
            // SAFETY: the buffer has rows and heads with these strides.
            unsafe { rotate_rows(isa, x.as_mut_ptr(), x_ld, rows, heads, head_ld, half, &angles) };
            let mut expected: Vec<f64> = before.iter().map(|value| f64::from(*value)).collect();
            for r in 0..rows {
                for head in 0..heads {
                    for i in 0..half {
                        let (first, angle) = (r * x_ld + head * head_ld + i, turns[r * half + i]);
                        let (a, b) = (f64::from(before[first]), f64::from(before[first + half]));
                        expected[first] = a * angle.cos() - b * angle.sin();
                        expected[first + half] = b * angle.cos() + a * angle.sin();
                    }
                }
            }
            // Values in -1 to 1: a pair is at most sqrt 2 long.
            let tolerance = ROPE_MAX_ERROR * std::f64::consts::SQRT_2;
            cases.close(&x, &expected, tolerance, || format!("{} {half} pairs", isa.name()));
        }
    }
}

#[test]
#[should_panic(expected = "angles for 2 rows")]
fn angles_that_are_missing_are_refused() {
    let mut x = vec![0.0; 16];
    // SAFETY: two rows of one head of eight values.
    unsafe { rotate_rows(Isa::best(), x.as_mut_ptr(), 8, 2, 1, 8, 4, &[0.0; 15]) };
}
