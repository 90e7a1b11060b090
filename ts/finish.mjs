// The last step of `npm run build:ts`: marks the CommonJS folders of dist, puts the addon beside them, and removes what
// a source file left behind that is gone, so that it is not packed.
//
// Nothing is missing at any moment, and a file that a running program has mapped is replaced, never written to.
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const dist = here('../dist')
const native = here('native')

for (const [folder, source] of Object.entries({ core: 'core', esm: 'entry', cjs: 'entry' })) {
  for (const file of readdirSync(join(dist, folder), { recursive: true })) {
    const stem = /^(.*?)\.(?:d\.ts|js|js\.map)$/.exec(file)?.[1]
    if (stem !== undefined && !existsSync(here(`${source}/${stem}.ts`))) rmSync(join(dist, folder, file))
  }
}

for (const folder of ['core', 'cjs']) writeFileSync(join(dist, folder, 'package.json'), '{ "type": "commonjs" }\n')

if (!existsSync(join(native, 'binding.cjs'))) {
  console.error('ts/native/binding.cjs is missing: run `npm run build:native` first')
  process.exit(1)
}
mkdirSync(join(dist, 'native'), { recursive: true })
for (const file of readdirSync(native)) {
  const temporary = join(dist, 'native', `.${file}.${process.pid}`)
  copyFileSync(join(native, file), temporary)
  renameSync(temporary, join(dist, 'native', file))
}
