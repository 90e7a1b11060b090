/** A result as tables for a terminal. Pure: the same result gives the same text. */

import { median, ratios, summary } from './statistics.mjs'

/** @param {any} result as `run.mjs` writes it  @returns {string} */
export function report(result) {
  const { engines, control } = result
  const base = engines[0]
  const sections = [
    header(result),
    ...Object.entries(result.corpora).map(([name, counts]) => throughput(name, counts, engines, base)),
    latency(engines, base),
    cost(engines),
    ...(control.length > 0 ? [eventLoop(engines, control)] : []),
    agreement(engines),
  ]
  return `${sections.join('\n\n')}\n`
}

function header({ date, machine, settings, engines, others }) {
  const place = `${machine.processor}${machine.family === null ? '' : ` (${machine.family})`}, ${machine.cores} cores${machine.virtual ? ', virtual' : ''}, ${machine.memoryGb} GB`
  return [
    `simile bench  ${date}  ${settings.threads} threads, ${settings.rounds} rounds`,
    place,
    others === null
      ? 'unknown how busy others were'
      : `others took ${(100 * others).toFixed(0)} % of the processors during the timed rounds`,
    machine.flags.join(' '),
    `${machine.system}, Node ${machine.node}`,
    ...engines.map(({ name, version, how }) => `  ${name} ${version}: ${how}`),
  ].join('\n')
}

function throughput(name, counts, engines, base) {
  const title = `${name}: ${counts.texts} texts, ${counts.tokens} tokens after the cut (mean ${counts.mean}, median ${counts.p50}, ${counts.truncated} cut)`
  const rows = engines.map((engine) => {
    const { median: ms, min, max } = summary(engine.passMs[name])
    const perSecond = (amount) => (1000 * amount) / ms
    return [
      engine.name,
      perSecond(counts.texts).toFixed(perSecond(counts.texts) < 100 ? 1 : 0),
      perSecond(counts.tokens).toFixed(0),
      `${((100 * (max - min)) / ms).toFixed(0)} %`,
      versus(engine === base, ratios(base.passMs[name], engine.passMs[name])),
    ]
  })
  return table(title, ['', 'texts/s', 'tokens/s', 'spread', `time / ${base.name}'s (min to max)`], rows)
}

function latency(engines, base) {
  const of = (engine, key) => engine.latencyMs.map((round) => round[key])
  const rows = engines.map((engine) => [
    engine.name,
    `${median(of(engine, 'p50')).toFixed(2)} ms`,
    `${median(of(engine, 'p95')).toFixed(2)} ms`,
    versus(engine === base, ratios(of(base, 'p50'), of(engine, 'p50'))),
  ])
  return table('one short text', ['', 'p50', 'p95', `p50 / ${base.name}'s (min to max)`], rows)
}

function cost(engines) {
  const rows = engines.map(({ name, loadMs, memory }) => [
    name,
    `${(median(loadMs) / 1000).toFixed(2)} s`,
    ...['peakMb', 'residentMb', 'anonymousMb'].map((key) =>
      memory === null ? 'unknown' : `${memory[key].toFixed(0)} MB`,
    ),
  ])
  return table('load and memory', ['', 'load', 'peak', 'resident', 'anonymous'], rows)
}

/** The worst round counts for the maximum, the median round for the quantiles. */
function eventLoop(engines, control) {
  const row = (name, rounds) => {
    const of = (key) => rounds.map((round) => round[key])
    const above = median(of('p99')) - median(control.map(({ p99 }) => p99))
    const cells = [median(of('p50')), median(of('p99')), Math.max(...of('max'))].map((ms) => `${ms.toFixed(1)} ms`)
    return [name, ...cells, rounds === control ? '' : `${above >= 0 ? '+' : ''}${above.toFixed(1)} ms`]
  }
  const subjects = engines.filter(({ eventLoopMs }) => eventLoopMs.length > 0)
  const rows = [
    row('control: busy threads', control),
    ...subjects.map(({ name, eventLoopMs }) => row(name, eventLoopMs)),
  ]
  return table(
    'event loop while embedding: time between ticks of a 1 ms timer',
    ['', 'p50', 'p99', 'max', 'p99 above control'],
    rows,
  )
}

function agreement(engines) {
  const rows = engines.map(({ name, agreement: byCorpus }) => {
    const all = Object.values(byCorpus)
    return [
      name,
      Math.min(...all.map(({ min }) => min)).toFixed(7),
      (all.reduce((sum, { mean }) => sum + mean, 0) / all.length).toFixed(7),
      Math.max(...all.map(({ maxDifference }) => maxDifference)).toExponential(1),
    ]
  })
  return table(
    "agreement with sentence-transformers' vectors",
    ['', 'cosine min', 'cosine mean', 'largest difference'],
    rows,
  )
}

function versus(isBase, { median: middle, min, max }) {
  return isBase ? '1' : `${middle.toFixed(2)}  (${min.toFixed(2)} to ${max.toFixed(2)})`
}

/** First column to the left, the others to the right. */
function table(title, head, rows) {
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column].length)))
  const line = (row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column])))
      .join('  ')
      .trimEnd()
  return [title, ...[head, ...rows].map((row) => `  ${line(row)}`)].join('\n')
}
