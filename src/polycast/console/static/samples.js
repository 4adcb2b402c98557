// The broker's counters, sampled every second on all pages: a chart has its history when its page opens.

export const DIALECTS = ['simplest', 'ubre', 'hermod', 'nanomsg', 'fanout']
const SAMPLES = 180
const COUNTS = ['messages_in', 'messages_out', 'bytes_in', 'bytes_out']

export class Samples {
  #before = null
  list = []
  /** { time, rates: { dialect: { messages_in, ... } }, fsync } of each interval. */
  stats = null
  /** The newest response. */

  add(stats) {
    const before = this.#before
    this.#before = this.stats = stats
    if (!before || stats.uptime_seconds <= before.uptime_seconds) {
      this.list = []
      return
    }
    const seconds = stats.uptime_seconds - before.uptime_seconds
    const [old, now] = [sums(before), sums(stats)]
    const rates = {}
    for (const [dialect, counts] of Object.entries(now)) {
      rates[dialect] = Object.fromEntries(COUNTS.map(name =>
        [name, Math.max(0, counts[name] - (old[dialect]?.[name] ?? 0)) / seconds]))
    }
    this.list.push({ time: stats.uptime_seconds, rates, fsync: toFsync(before, stats) })
    this.list.splice(0, this.list.length - SAMPLES)
  }

  get newest() {
    return this.list.at(-1) ?? null
  }

  /** The newest rate of all dialects together. */
  total(name) {
    return this.newest && Object.values(this.newest.rates).reduce((sum, counts) => sum + counts[name], 0)
  }

  /** The mean fsync time in milliseconds, of the newest interval with an fsync. */
  get fsync() {
    return this.list.findLast(sample => sample.fsync !== null)?.fsync ?? null
  }

  dialects() {
    const seen = new Set(this.stats ? this.stats.listeners.map(({ dialect }) => dialect) : [])
    return [...DIALECTS.filter(name => seen.has(name)), ...[...seen].filter(name => !DIALECTS.includes(name))]
  }
}

export function sums(stats) {
  const found = {}
  for (const row of stats.listeners) {
    const counts = found[row.dialect] ??= { open: 0, messages_in: 0, messages_out: 0, bytes_in: 0, bytes_out: 0, queue_bytes: 0 }
    for (const name of Object.keys(counts)) counts[name] += row[name] ?? 0
  }
  return found
}

function toFsync(before, now) {
  const count = now.log_syncs - before.log_syncs
  return count > 0 ? (now.log_sync_seconds - before.log_sync_seconds) / count * 1000 : null
}
