#!/usr/bin/env node
/**
 * Installs what the benchmark compares simile with, into bench/.work: `npm run bench:setup`.
 *
 * Every version is pinned in `rivals/` and in `setup/`. A step that was done with the same inputs is not done again, so a
 * second run takes seconds and needs no network. Needs Python 3.11 or later and about 6 GB, most of it libraries
 * that torch's Linux wheel links but does not use on a CPU.
 *
 *   --python PATH   use this interpreter, which has the packages of rivals/requirements.txt, and install none
 */

import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { catalogue } from './lib/catalogue.mjs'
import { CORPUS_NAMES } from './lib/corpora.mjs'
import { EngineProcess } from './lib/engine_process.mjs'
import { BENCH, CORPORA, ONNX_MODEL, REFERENCE, ROOT, readJson, SETUP, WORK } from './lib/paths.mjs'

const MODEL_ID = 'sentence-transformers/all-MiniLM-L6-v2'
const THREADS = 2

const { values: flags } = parseArgs({ options: { python: { type: 'string' } } })
const rivals = (file) => path.join(BENCH, 'rivals', file)
const script = (file) => path.join(BENCH, 'setup', file)
const venv = path.join(WORK, 'venv')
const python = flags.python ?? path.join(venv, 'bin/python')

mkdirSync(WORK, { recursive: true })
await step('packages', [rivals('package-lock.json')], 'node_modules', () => {
  for (const file of ['package.json', 'package-lock.json']) copyFileSync(rivals(file), path.join(WORK, file))
  // Without scripts: onnxruntime-node's fetches GPU libraries, and the CPU ones are in the package.
  run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: WORK })
})
if (flags.python === undefined) {
  await step('python', [rivals('requirements.txt')], 'venv', () => {
    run('python3', ['-m', 'venv', venv])
    run(python, [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--disable-pip-version-check',
      '--no-deps',
      '-r',
      rivals('requirements.txt'),
    ])
  })
}
const model = fetchModel()
writeFileSync(SETUP, JSON.stringify({ model, python }))
await step('graphs', [script('export_onnx.py'), rivals('requirements.txt'), model], ONNX_MODEL, () => {
  run(python, ['-W', 'ignore', script('export_onnx.py'), model, ONNX_MODEL])
})
await step('corpora', [script('make_corpora.py'), model], CORPORA, () => {
  run(python, ['-W', 'ignore', script('make_corpora.py'), model, CORPORA])
})
await step('reference', [script('make_corpora.py'), rivals('requirements.txt'), model], REFERENCE, async () => {
  mkdirSync(REFERENCE, { recursive: true })
  const engine = new EngineProcess(
    catalogue().find(({ name }) => name === 'sentence-transformers'),
    { threads: THREADS },
  )
  await engine.request('load')
  for (const corpus of CORPUS_NAMES)
    await engine.request('embed', { corpus, file: path.join(REFERENCE, `${corpus}.f32`) })
  await engine.close()
})
say('ready: npm run bench')

/**
 * Makes `output` from `inputs` (files, or strings that stand for themselves), unless it is there and was made from the
 * same. An output that was left half made is made anew, because its stamp is written last.
 */
async function step(name, inputs, output, make) {
  const stamps = path.join(WORK, 'stamps.json')
  const done = existsSync(stamps) ? readJson(stamps) : {}
  const stamp = createHash('sha256')
  for (const input of inputs) stamp.update(existsSync(input) && statSync(input).isFile() ? readFileSync(input) : input)
  const digest = stamp.digest('hex')
  const target = path.resolve(WORK, output)
  if (done[name] === digest && existsSync(target)) return
  say(name)
  delete done[name]
  writeFileSync(stamps, JSON.stringify(done, null, 1))
  rmSync(target, { recursive: true, force: true })
  await make()
  writeFileSync(stamps, JSON.stringify({ ...done, [name]: digest }, null, 1))
}

/** The folder of the model in the project's own cache, fetched when it is not there. */
function fetchModel() {
  const args = [path.join(ROOT, 'tools/fetch_models.py'), '--cache-dir', path.join(ROOT, '.models/hub')]
  const printed = execFileSync(python, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
  const line = printed.split('\n').find((candidate) => candidate.startsWith(`${MODEL_ID}\t`))
  if (line === undefined)
    throw new Error(`tools/fetch_models.py did not name the folder of ${MODEL_ID}, but printed: ${printed}`)
  return line.split('\t')[1]
}

function run(program, args, options = {}) {
  execFileSync(program, args, { stdio: ['ignore', 2, 'inherit'], ...options })
}

function say(text) {
  process.stderr.write(`bench:setup  ${text}\n`)
}
