// Packs the main package and this platform's package as a release would, and installs both tarballs into an empty
// folder. Needs `npm run build`; opens no connection, because what the main package depends on is packed from node_modules.

import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const HERE = fileURLToPath(new URL('.', import.meta.url))

function npm(args, cwd) {
  const shell = process.platform === 'win32' // npm is a .cmd there
  const env = {
    ...process.env,
    npm_config_update_notifier: 'false',
    npm_config_fund: 'false',
    npm_config_audit: 'false',
  }
  return execFileSync('npm', args, { cwd, env, shell, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

/** The addon that the build left, `simile.<platform>.node`. */
function addon() {
  const folder = join(ROOT, 'ts', 'native')
  const names = readdirSync(folder).filter((name) => name.endsWith('.node'))
  if (names.length !== 1) throw new Error(`one addon expected in ${folder}, found ${names.length}: run "npm run build"`)
  return join(folder, names[0])
}

/** Packs both packages and what they depend on into `folder`, and gives the paths of the tarballs. */
export function pack(folder) {
  const packed = (json) => join(folder, JSON.parse(json)[0].filename)
  const main = packed(npm(['pack', '--json', '--ignore-scripts', '--pack-destination', folder], ROOT))
  const file = addon()
  const platform = file.slice(file.lastIndexOf('simile.') + 'simile.'.length, -'.node'.length)
  // Put together elsewhere: the folder in npm/ holds no addon between releases.
  const staged = join(folder, 'platform')
  cpSync(join(ROOT, 'npm', platform), staged, { recursive: true })
  copyFileSync(file, join(staged, `simile.${platform}.node`))
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const others = Object.keys(dependencies).map((name) =>
    packed(npm(['pack', '--json', '--ignore-scripts', '--pack-destination', folder], join(ROOT, 'node_modules', name))),
  )
  return { main, others, platform: packed(npm(['pack', '--json', '--pack-destination', folder], staged)) }
}

/** An application with both packages installed and the programs of this folder in it. Returns its folder. */
export function install() {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'simile-packed-')))
  const tarballs = join(folder, 'tarballs')
  const application = join(folder, 'application')
  mkdirSync(tarballs)
  mkdirSync(application)
  const { main, others, platform } = pack(tarballs)
  writeFileSync(join(application, 'package.json'), JSON.stringify({ name: 'application', private: true }))
  npm(['install', '--offline', '--ignore-scripts', '--no-package-lock', main, platform, ...others], application)
  for (const name of readdirSync(HERE).filter((name) => /^(smoke|consumer)\./.test(name))) {
    copyFileSync(join(HERE, name), join(application, name))
  }
  return { application, folder, main, others, platform, remove: dirname(application) }
}
