// Numbers, sizes and times as text.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const short = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

export const NONE = '–'

export function number(value) {
  return known(value) ? whole.format(value) : NONE
}

/** With one decimal below 10. */
export function rate(value) {
  if (!known(value)) return NONE
  return value >= 100_000 ? compact.format(value) : (value < 10 ? short : whole).format(value)
}

export function bytes(value) {
  if (!known(value)) return NONE
  let unit = 0
  for (; value >= 1024 && unit < UNITS.length - 1; unit += 1) value /= 1024
  return `${(unit && value < 100 ? short : whole).format(value)} ${UNITS[unit]}`
}

export function milliseconds(value) {
  return known(value) ? `${value < 10 ? value.toFixed(2) : whole.format(value)} ms` : NONE
}

/** A duration: 45 s, 12 min, 3 h, 2 d. */
export function span(seconds) {
  if (!known(seconds)) return NONE
  for (const [size, unit] of [[86_400, 'd'], [3600, 'h'], [60, 'min']]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`
  }
  return `${Math.floor(seconds)} s`
}

/** Time since then: `now` is the broker's clock, in seconds. */
export function ago(time, now) {
  if (!time) return NONE
  const seconds = Math.max(0, now - Date.parse(time) / 1000)
  return seconds < 2 ? 'now' : `${span(seconds)} ago`
}

export function clock(time) {
  const date = new Date(time)
  const pad = (value, digits = 2) => String(value).padStart(digits, '0')
  const day = date.toDateString() === new Date().toDateString() ? ''
    : `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} `
  return `${day}${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`
}

export function sizeOf(text) {
  return new TextEncoder().encode(text).length
}

function known(value) {
  return typeof value === 'number' && Number.isFinite(value)
}
