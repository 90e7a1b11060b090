/** The few numbers that the report is made of. All ignore the order of their input and fail on an empty one. */

/** @param {number[]} values  @param {number} share 0 to 1; the nearest rank below, so the answer is one of the values */
export function quantile(values, share) {
  if (values.length === 0) throw new RangeError('quantile of no values')
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
}

/** @param {number[]} values */
export function median(values) {
  if (values.length === 0) throw new RangeError('median of no values')
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Median, least and greatest. @param {number[]} values */
export function summary(values) {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) }
}

/**
 * How many times `other` took the time of `base`, round by round: what drifts slowly on a shared machine hits both of a
 * round alike, so the ratio of a round is steadier than its times.
 *
 * @param {number[]} base  @param {number[]} other the same rounds
 */
export function ratios(base, other) {
  return summary(base.map((time, round) => other[round] / time))
}
