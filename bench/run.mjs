#!/usr/bin/env node
/** Puts simile beside its rivals: `npm run bench`. What is measured and how: README.md. */

import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { catalogue } from './lib/catalogue.mjs'
import { CORPUS_NAMES, corpusCounts } from './lib/corpora.mjs'
import { describeMachine } from './lib/machine.mjs'
import { measure } from './lib/measure.mjs'
import { REFERENCE, RESULTS, ROOT } from './lib/paths.mjs'
import { report } from './lib/report.mjs'

const HELP = `usage: npm run bench -- [options]

  --engines A,B     which, in this order; ratios are told for the first (default: all)
  --corpora A,B     of ${CORPUS_NAMES.join(', ')} (default: all)
  --rounds N        passes of every engine over every corpus (default: 5, with --quick 3)
  --threads N       compute threads of every engine (default: 2)
  --quick           for comparing two builds: loads once, leaves the event loop out
  --baseline DIR    adds another, built checkout of simile as the engine "baseline"
  --json            prints the result as JSON instead of tables
  --help
`

class UsageError extends Error {}

try {
  process.exitCode = await main()
} catch (error) {
  process.stderr.write(`bench: ${error instanceof UsageError ? `${error.message}\n\n${HELP}` : `${error.message}\n`}`)
  process.exitCode = error instanceof UsageError ? 2 : 1
}

async function main() {
  const flags = readFlags()
  if (flags.help) {
    process.stdout.write(HELP)
    return 0
  }
  const plan = readPlan(flags)
  checkReady(plan)
  const date = new Date().toISOString()
  const machine = describeMachine()
  if (machine.load > 0.5) progress(`the machine is busy (load ${machine.load.toFixed(1)}): expect wide spreads`)
  const { engines, control, others } = await measure(plan, progress)
  const result = {
    date,
    machine,
    settings: { threads: plan.threads, rounds: plan.rounds, loads: plan.loads, eventLoopRounds: plan.eventLoopRounds },
    corpora: Object.fromEntries(plan.corpora.map((name) => [name, corpusCounts(name)])),
    engines: plan.engines.map(({ name, version, how }) => ({ name, version, how, ...engines[name] })),
    control,
    others,
  }
  mkdirSync(RESULTS, { recursive: true })
  const file = path.join(RESULTS, `${date.replaceAll(':', '-').slice(0, 19)}.json`)
  writeFileSync(file, `${JSON.stringify(result, null, 1)}\n`)
  process.stdout.write(flags.json ? `${JSON.stringify(result, null, 1)}\n` : report(result))
  progress(`written: ${path.relative(process.cwd(), file)}`)
  return 0
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        engines: { type: 'string' },
        corpora: { type: 'string' },
        rounds: { type: 'string' },
        threads: { type: 'string', default: '2' },
        quick: { type: 'boolean', default: false },
        baseline: { type: 'string' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    throw new UsageError(error.message)
  }
}

/** @returns {import('./lib/measure.mjs').Plan} */
function readPlan(flags) {
  const known = new Map(catalogue({ baseline: flags.baseline }).map((engine) => [engine.name, engine]))
  return {
    engines: names('--engines', flags.engines, [...known.keys()]).map((name) => known.get(name)),
    corpora: names('--corpora', flags.corpora, CORPUS_NAMES),
    rounds: count('--rounds', flags.rounds ?? (flags.quick ? '3' : '5')),
    threads: count('--threads', flags.threads),
    loads: flags.quick ? 1 : 4,
    eventLoopRounds: flags.quick ? 0 : 3,
  }
}

function names(flag, given, known) {
  const chosen = given === undefined ? known : [...new Set(given.split(','))]
  const unknown = chosen.find((name) => !known.includes(name))
  if (unknown !== undefined) throw new UsageError(`${flag}: there is no "${unknown}", only ${known.join(', ')}`)
  return chosen
}

function count(flag, given) {
  if (!/^[1-9]\d{0,3}$/.test(given)) throw new UsageError(`${flag}: "${given}" is not a whole number from 1 to 9999`)
  return Number(given)
}

function checkReady({ engines }) {
  if (!existsSync(REFERENCE)) throw new Error('the rivals are not installed: run `npm run bench:setup` first')
  for (const { options } of engines) {
    if (options?.root !== undefined && !existsSync(path.join(options.root, 'dist/esm/index.js'))) {
      throw new Error(
        `simile is not built in ${options.root === ROOT ? 'this checkout' : options.root}: run \`npm run build\` there first`,
      )
    }
  }
}

function progress(text) {
  process.stderr.write(`bench  ${text}\n`)
}
