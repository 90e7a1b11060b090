/** What a reader must know of the machine to judge the numbers. */

import { readFileSync } from 'node:fs'
import os from 'node:os'

/** Instruction sets that decide which kernels an engine can use. */
const FLAGS = [
  ...'avx avx2 fma f16c avx_vnni'.split(' '),
  ...'avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8'.split(' '),
  ...'asimd asimdhp asimddp bf16 i8mm sve sve2'.split(' '),
]

export function describeMachine() {
  const info = readOr('/proc/cpuinfo', '')
  const field = (name) => new RegExp(`^${name}\\s*:\\s*(.*)$`, 'm').exec(info)?.[1]
  const present = new Set((field('flags') ?? field('Features') ?? '').split(' '))
  const cpus = os.cpus()
  return {
    processor: field('model name') ?? cpus[0]?.model ?? 'unknown',
    family: field('cpu family') === undefined ? null : `${field('cpu family')}/${field('model')}/${field('stepping')}`,
    flags: FLAGS.filter((flag) => present.has(flag)),
    cores: os.availableParallelism(),
    memoryGb: Math.round(os.totalmem() / 2 ** 30),
    cacheKb: Number.parseInt(readOr('/sys/devices/system/cpu/cpu0/cache/index2/size', '0'), 10) || null, // level 2, per core
    virtual: present.has('hypervisor'),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    node: process.version,
    /** Mean length of the run queue over the last minute, at the start: above 0.5 somebody else is computing. */
    load: os.loadavg()[0],
  }
}

function readOr(file, otherwise) {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return otherwise
  }
}
