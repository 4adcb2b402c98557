// A payload as text, as expandable JSON, or as hex.

import { h } from './dom.js'
import { bytes, number } from './words.js'

const TEXT_CHARACTERS = 2000
const HEX_BYTES = 512
const MEMBERS = 200
/** Shown at first; a button shows the rest. */
const ROW = 16

export const VIEWS = [['auto', 'Auto'], ['text', 'Text'], ['json', 'JSON'], ['hex', 'Hex']]

/** From the body of a UBRE message: a text, a JSON value, or bytes in base64. */
export function toPayload(body, format) {
  if (format === 'none') return { text: '', data: new Uint8Array(), json: undefined, format }
  if (format === 'bytes' && body && typeof body === 'object' && typeof body.$base64 === 'string') {
    return { text: null, data: Uint8Array.from(atob(body.$base64), character => character.charCodeAt(0)), json: undefined, format }
  }
  const text = format === 'json' || typeof body !== 'string' ? JSON.stringify(body) : body
  return { text, data: new TextEncoder().encode(text), json: format === 'json' ? body : parse(text), format }
}

/** Live UBRE messages carry no format. */
export function guessFormat(body) {
  if (body === undefined) return 'none'
  if (typeof body === 'string' || (body && typeof body === 'object' && typeof body.$base64 === 'string')) return 'bytes'
  return 'json'
}

export function show(payload, view) {
  if (payload.format === 'none') return h('span', { class: 'soft' }, 'no payload')
  if (!payload.data.length) return h('span', { class: 'soft' }, 'empty')
  if (view === 'hex' || (view !== 'json' && payload.text === null)) return hex(payload.data)
  if (view === 'json' && payload.json === undefined) return h('span', { class: 'soft' }, 'not JSON')
  if (view === 'json' || (view === 'auto' && payload.json !== null && typeof payload.json === 'object')) return fold(payload.json)
  return long(payload.text, TEXT_CHARACTERS, text => h('pre', {}, text), size => `${number(size)} more characters`)
}

function parse(text) {
  if (!/^\s*[[{]/.test(text)) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The first `size` items, and a button that shows all. */
function long(all, size, make, words) {
  if (all.length <= size) return make(all)
  const button = h('button', { type: 'button', class: 'quiet', click: () => whole.replaceChildren(make(all)) },
    `${words(all.length - size)}: show`)
  const whole = h('div', {}, make(all.slice(0, size)), button)
  return whole
}

function hex(data) {
  return long(data, HEX_BYTES, part => h('pre', { class: 'hex' }, toHex(part)), size => `${bytes(size)} more`)
}

function toHex(data) {
  const lines = []
  for (let at = 0; at < data.length; at += ROW) {
    const row = [...data.subarray(at, at + ROW)]
    const codes = row.map(value => value.toString(16).padStart(2, '0')).join(' ').padEnd(3 * ROW - 1)
    const letters = row.map(value => value >= 32 && value < 127 ? String.fromCharCode(value) : '.').join('')
    lines.push(`${at.toString(16).padStart(6, '0')}  ${codes}  ${letters}`)
  }
  return lines.join('\n')
}

/** Members are built on the first expansion: a deep value costs nothing before. */
function fold(value) {
  if (value === null || typeof value !== 'object') return h('code', { class: `json ${typeof value}` }, JSON.stringify(value))
  const members = Array.isArray(value) ? [...value.entries()] : Object.entries(value)
  if (!members.length) return h('code', { class: 'json' }, Array.isArray(value) ? '[]' : '{}')
  const inside = h('ul')
  const details = h('details', { class: 'json', toggle: () => {
    if (details.open && !inside.children.length) inside.append(...toMembers(members))
  } }, h('summary', {}, preview(value)), inside)
  return details
}

function toMembers(members) {
  const items = members.slice(0, MEMBERS).map(([key, value]) =>
    h('li', {}, h('span', { class: 'key' }, String(key)), ' ', fold(value)))
  if (members.length > MEMBERS) items.push(h('li', { class: 'soft' }, `${number(members.length - MEMBERS)} more`))
  return items
}

function preview(value) {
  const text = JSON.stringify(value)
  return text.length > 120 ? `${text.slice(0, 119)}…` : text
}
