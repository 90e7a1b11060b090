/** How much of the processors others took while something was timed, as Linux tells it. */

import { readFileSync } from 'node:fs'
import os from 'node:os'

const TICKS_PER_SECOND = 100 // USER_HZ, the same on every Linux

/**
 * @param {number[]} pids the processes that are being measured; this one counts as theirs
 * @returns {() => number | null} called at the end: the share, 0 to 1, of all processor time since the start that went to
 *   other processes or, on a virtual machine, to other machines; null where there is no /proc
 */
export function watchDisturbance(pids) {
  const ours = [process.pid, ...pids]
  const start = read(ours)
  const startMs = performance.now()
  return () => {
    const end = read(ours)
    if (start === null || end === null) return null
    const available = ((performance.now() - startMs) / 1000) * TICKS_PER_SECOND * os.cpus().length
    return Math.max(0, (end.busy - start.busy - (end.own - start.own)) / available)
  }
}

function read(pids) {
  try {
    // user nice system idle iowait irq softirq steal; guest time is counted in user already
    const [user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'utf8')
      .split('\n')[0]
      .split(/\s+/)
      .slice(1)
      .map(Number)
    return {
      busy: user + nice + system + irq + softirq + steal,
      own: pids.reduce((sum, pid) => sum + ownTicks(pid), 0),
    }
  } catch {
    return null
  }
}

/** utime + stime, fields 14 and 15; the name in field 2 may hold spaces, so counted from behind it. */
function ownTicks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
  return Number(fields[11]) + Number(fields[12])
}
