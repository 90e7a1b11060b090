//! How a ragged batch lies on a device: tokens one after the other everywhere but in the attention, which wants a
//! rectangle.
//!
//! Linear layers, norms and tables work on `[tokens, width]` and never see padding. For the attention, rows are gathered
//! to `[sequences, longest]` slots and back; what lies in a padded slot is a copy of the first token, whose result is
//! thrown away.

use candle_core::{Device, Result, Tensor};

use crate::spec::{Positions, Rope};
use crate::{EncoderInput, Rows};

/// Slots of a rectangle: what a group may be padded to, unless one sequence alone is longer. 16 sequences of 1,024
/// tokens; queries of width 1,024 take 67 MB in f32.
const GROUP_SLOTS: usize = 16 << 10;

/// Shares sequences out to groups that run one after the other, each one rectangle: longest first, so that neighbours in
/// length share one. Indices into `lengths`.
pub(super) fn groups(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for sequence in order {
        match groups.last_mut() {
            Some(group) if lengths[group[0]] * (group.len() + 1) <= GROUP_SLOTS => group.push(sequence),
            _ => groups.push(vec![sequence]),
        }
    }
    groups
}

/// A group of sequences on a device.
pub(super) struct Group {
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// How many of them are attended to, its first ones.
    pub attended: Vec<usize>,
    /// The longest sequence.
    pub longest: usize,
    /// `[tokens]`: ids.
    pub ids: Tensor,
    /// `[tokens]`: token types; `None` when all are 0.
    pub types: Option<Tensor>,
    /// `[tokens]`: rows of the position table, when there is one.
    pub positions: Option<Tensor>,
    /// `[sequences * longest]`: the token in each slot; `None` when nothing is padded.
    gather: Option<Tensor>,
    /// `[tokens]`: the slot of each token; `None` when nothing is padded.
    scatter: Option<Tensor>,
    /// Of the rows that will be read: which token each is, and its slot. `None` for all.
    wanted: Option<(Tensor, Tensor)>,
}

impl Group {
    pub(super) fn new(
        batch: &EncoderInput<'_>,
        starts: &[usize],
        group: &[usize],
        positions: Positions,
        rows: Rows,
        device: &Device,
    ) -> Result<Group> {
        let lengths: Vec<usize> = group.iter().map(|&sequence| batch.lengths[sequence]).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let tokens: usize = lengths.iter().sum();
        let upload = |values: Vec<u32>| {
            let count = values.len();
            Tensor::from_vec(values, count, device)
        };
        let of = |values: &[u32]| -> Vec<u32> {
            let parts = group.iter().map(|&i| &values[starts[i]..starts[i] + batch.lengths[i]]);
            parts.flatten().copied().collect()
        };
        let ids = of(batch.input_ids);
        let (mut table, mut gather, mut scatter) = (Vec::new(), Vec::new(), Vec::new());
        let (mut wanted, mut wanted_slots) = (Vec::new(), Vec::new());
        let mut start = 0;
        for (i, &length) in lengths.iter().enumerate() {
            table.extend(positions.rows(&ids[start..start + length]).map(|row| row as u32));
            let slot = i * longest;
            gather.extend((0..longest).map(|at| if at < length { start + at } else { 0 } as u32));
            scatter.extend((slot..slot + length).map(|slot| slot as u32));
            let row = rows.first(length);
            wanted.push((start + row) as u32);
            wanted_slots.push((slot + row) as u32);
            start += length;
        }
        let padded = tokens < lengths.len() * longest;
        Ok(Group {
            attended: group.iter().map(|&sequence| batch.attended(sequence)).collect(),
            longest,
            types: if batch.token_type_ids.is_empty() { None } else { Some(upload(of(batch.token_type_ids))?) },
            positions: if table.is_empty() { None } else { Some(upload(table)?) },
            gather: if padded { Some(upload(gather)?) } else { None },
            scatter: if padded { Some(upload(scatter)?) } else { None },
            wanted: match rows {
                Rows::All => None,
                Rows::First | Rows::Last => Some((upload(wanted)?, upload(wanted_slots)?)),
            },
            ids: upload(ids)?,
            lengths,
        })
    }

    /// `[tokens, heads * head_dim]` to `[sequences, heads, longest, head_dim]`, contiguous.
    pub(super) fn heads_of_rows(&self, x: &Tensor, heads: usize, head_dim: usize) -> Result<Tensor> {
        let x = match &self.gather {
            Some(tokens) => x.index_select(tokens, 0)?,
            None => x.clone(),
        };
        x.reshape((self.lengths.len(), self.longest, heads, head_dim))?.transpose(1, 2)?.contiguous()
    }

    /// `[sequences, heads, longest, head_dim]` back to rows of `heads * head_dim`: of all tokens, or, in the `last` layer, of
    /// those that will be read.
    pub(super) fn rows_of_heads(&self, x: &Tensor, last: bool) -> Result<Tensor> {
        let (sequences, heads, longest, head_dim) = x.dims4()?;
        let x = x.transpose(1, 2)?.reshape((sequences * longest, heads * head_dim))?;
        match (&self.wanted, &self.scatter) {
            (Some((_, slots)), _) if last => x.index_select(slots, 0),
            (_, Some(slots)) => x.index_select(slots, 0),
            (_, None) => Ok(x),
        }
    }

    /// Rows of the residual stream that go with those of [`rows_of_heads`](Self::rows_of_heads).
    pub(super) fn residual(&self, x: &Tensor, last: bool) -> Result<Tensor> {
        match &self.wanted {
            Some((tokens, _)) if last => x.index_select(tokens, 0),
            _ => Ok(x.clone()),
        }
    }

    /// Whether some slot is not to be attended to.
    pub(super) fn has_hidden_slots(&self) -> bool {
        self.attended.iter().any(|&attended| attended < self.longest)
    }

    /// Whether some token, which is not padding, is not to be attended to.
    pub(super) fn has_unattended(&self) -> bool {
        self.attended.iter().zip(&self.lengths).any(|(attended, length)| attended < length)
    }

    /// Cosines and sines of `rope` for every slot: `[longest, head_dim / 2]`, or one such table for each sequence where the
    /// frequencies depend on its length.
    pub(super) fn rotation(&self, rope: Rope, head_dim: usize, device: &Device) -> Result<(Tensor, Tensor)> {
        let half = head_dim / 2;
        let lengths = if rope.depends_on_length() { &self.lengths[..] } else { &self.lengths[..1] };
        let mut angles = Vec::with_capacity(lengths.len() * self.longest * half);
        for &length in lengths {
            let frequencies = rope.frequencies(head_dim, length);
            for position in 0..self.longest {
                angles.extend(frequencies.iter().map(|frequency| f64::from(position as f32 * frequency)));
            }
        }
        let table = |function: fn(f64) -> f64| {
            let values: Vec<f32> = angles.iter().map(|&angle| function(angle) as f32).collect();
            let table = Tensor::from_vec(values, (lengths.len(), self.longest, half), device)?;
            if rope.depends_on_length() { Ok(table) } else { table.squeeze(0) }
        };
        Ok((table(f64::cos)?, table(f64::sin)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_is_in_one_group_and_no_group_is_padded_past_the_limit() {
        let tables: [&[usize]; 5] = [&[], &[5], &[8192, 3, 8192, 4000, 1], &[40_000, 40_000, 2], &[300; 200]];
        for lengths in tables {
            let groups = groups(lengths);
            let mut seen: Vec<usize> = groups.concat();
            seen.sort_unstable();
            assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>(), "{lengths:?}");
            for group in &groups {
                let longest = group.iter().map(|&i| lengths[i]).max().unwrap();
                assert!(group.len() == 1 || longest * group.len() <= GROUP_SLOTS, "{lengths:?}: {group:?}");
            }
        }
        assert_eq!(groups(&[8192, 3, 8192, 4000, 1]), [vec![0, 2], vec![3, 1, 4]]);
    }
}
