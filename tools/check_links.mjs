// Checks the relative links of every Markdown page: the file is there, and so is the heading that a link names.
// Checks the tests that pages name, as `file › title`: a file of that name holds the title.
// Prints everything that is broken, and exits with 1 if there is anything.

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const NOT_OURS = new Set(['node_modules', 'target', 'dist', 'api'])

function* files(folder, endings) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (NOT_OURS.has(entry.name) || entry.name.startsWith('.')) continue
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* files(path, endings)
    else if (endings.some((ending) => entry.name.endsWith(ending))) yield path
  }
}

/** The text without code, where brackets are no links and # is no heading. */
const prose = (markdown) => markdown.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, '')

/** The anchors of a page, as forges make them of its headings. */
function anchors(path) {
  const headings = readFileSync(path, 'utf8')
    .replace(/^```[\s\S]*?^```/gm, '')
    .matchAll(/^#+ +(.*)$/gm)
  return new Set(
    [...headings].map(([, text]) =>
      text
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .trim()
        .replace(/\s/g, '-'),
    ),
  )
}

/** The sources that tests are in. */
const sources = ['__test__', 'crates'].flatMap((folder) => [...files(join(ROOT, folder), ['.spec.ts', '.rs'])])
const hasTest = (file, title) =>
  sources.some((path) => basename(path) === file && readFileSync(path, 'utf8').includes(title))

const broken = []
let links = 0
for (const page of files(ROOT, ['.md'])) {
  for (const [, file, title] of readFileSync(page, 'utf8').matchAll(/`([\w.]+) › ([^`]+)`/g)) {
    links++
    if (!hasTest(file, title)) broken.push(`${relative(ROOT, page)}: no test "${title}" in a file ${file}`)
  }
  for (const [, target] of prose(readFileSync(page, 'utf8')).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:/.test(target)) continue
    links++
    const [file, anchor] = target.split('#')
    const path = file === '' ? page : resolve(dirname(page), file)
    const missing = !existsSync(path) || (anchor && (!statSync(path).isFile() || !anchors(path).has(anchor)))
    if (missing) broken.push(`${relative(ROOT, page)}: link to ${target}`)
  }
}
for (const link of broken) console.error(`broken: ${link}`)
console.log(`${links} links checked, ${broken.length} broken`)
process.exitCode = broken.length === 0 ? 0 : 1
