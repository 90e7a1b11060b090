// Gives the CUDA package, and the optional peer dependency on it, the version of this package: the part of `npm version`
// that napi does not know of.
import { readFileSync, writeFileSync } from 'node:fs'

const NAME = 'simile-cuda-linux-x64'
const { version } = JSON.parse(readFileSync('package.json', 'utf8'))

function change(path, edit) {
  const json = JSON.parse(readFileSync(path, 'utf8'))
  edit(json)
  writeFileSync(path, `${JSON.stringify(json, null, 2)}\n`)
}

change('npm/cuda-linux-x64/package.json', (json) => {
  json.version = version
})
change('package.json', (json) => {
  json.peerDependencies[NAME] = version
})
change('package-lock.json', (json) => {
  json.packages[''].peerDependencies[NAME] = version
})
