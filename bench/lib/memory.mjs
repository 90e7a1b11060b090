/** Memory of another process, as Linux tells it. */

import { readFileSync } from 'node:fs'

/**
 * @param {number} pid
 * @returns {{ peakMb: number, residentMb: number, anonymousMb: number } | null} null where there is no /proc.
 *   `anonymousMb` leaves out file pages (a mapped model file), which the system takes back when it needs memory.
 */
export function memoryOf(pid) {
  let status
  try {
    status = readFileSync(`/proc/${pid}/status`, 'utf8')
  } catch {
    return null
  }
  const megabytes = (field) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)[1]) / 1024
  return { peakMb: megabytes('VmHWM'), residentMb: megabytes('VmRSS'), anonymousMb: megabytes('RssAnon') }
}
