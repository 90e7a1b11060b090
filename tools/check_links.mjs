// Checks the relative links of every Markdown page: the file is there, and so is the heading that a link names.
// Prints every broken link, and exits with 1 if there is one.

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const NOT_OURS = new Set(['node_modules', 'target', 'dist', 'api'])

function* markdownFiles(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (NOT_OURS.has(entry.name) || entry.name.startsWith('.')) continue
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* markdownFiles(path)
    else if (entry.name.endsWith('.md')) yield path
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

const broken = []
let links = 0
for (const page of markdownFiles(ROOT)) {
  for (const [, target] of prose(readFileSync(page, 'utf8')).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:/.test(target)) continue
    links++
    const [file, anchor] = target.split('#')
    const path = file === '' ? page : resolve(dirname(page), file)
    const missing = !existsSync(path) || (anchor && (!statSync(path).isFile() || !anchors(path).has(anchor)))
    if (missing) broken.push(`${relative(ROOT, page)}: ${target}`)
  }
}
for (const link of broken) console.error(`broken link in ${link}`)
console.log(`${links} links checked, ${broken.length} broken`)
process.exitCode = broken.length === 0 ? 0 : 1
