// Publish: one message, in any format, as a publisher of any dialect would send it.

import { field, form, h, notice } from './dom.js'
import { DIALECTS } from './samples.js'
import { number, sizeOf } from './words.js'

const FORMATS = [['text', 'Text'], ['json', 'JSON'], ['bytes', 'Bytes, as hex'], ['none', 'No payload']]
const LIMITS = { topic_bytes: 1024, payload_bytes: 16 * 1024 * 1024, line_bytes: 65_536 }
/** Used until the broker has sent its own limits. */
const ENVELOPE = 200
/** Bytes of a request besides the message. */

export function publish({ ubre, samples }, _, query) {
  const status = notice()
  const topic = h('input', { id: 'topic', required: true, autocomplete: 'off', spellcheck: 'false', value: query.get('topic') ?? '' })
  const payload = h('textarea', { id: 'payload', rows: '8', spellcheck: 'false' })
  const format = select('format', FORMATS, chosen => { payload.disabled = chosen === 'none' })
  const dialect = select('dialect', DIALECTS.map(name => [name, name]))
  dialect.value = 'ubre'

  const send = () => status.attempt(async () => {
    const message = toMessage(topic.value, payload.value, format.value, samples.stats?.limits ?? LIMITS)
    const { offset, sequence } = await ubre.request('polycast/publish', { ...message, dialect: dialect.value })
    const position = offset === null ? 'not durable: the broker has no log' : `offset ${number(offset)}`
    status.show(`Published with sequence ${number(sequence)} of its topic, ${position}.`)
  })

  return h('div', { class: 'page' }, h('div', { class: 'title' }, h('h1', {}, 'Publish')),
    form(send,
      field('topic', 'Topic', topic),
      field('payload', 'Payload', payload),
      h('div', { class: 'pair' }, field('format', 'Format', format), field('dialect', 'As dialect', dialect)),
      h('p', { class: 'soft' }, 'Only ubre has formats; in all other dialects the payload is bytes.'),
      h('div', { class: 'row' }, h('button', { class: 'primary' }, 'Publish')), status.element))
}

function select(id, options, changed = () => {}) {
  const element = h('select', { id, change: () => changed(element.value) },
    options.map(([value, text]) => h('option', { value }, text)))
  return element
}

/** The body of the request. Throws an Error if the message cannot be published. */
export function toMessage(topic, payload, format, limits) {
  check('The topic', sizeOf(topic), limits.topic_bytes, 'limits.topic_bytes')
  if (format === 'none') return { topic, format }
  const bytes = format === 'bytes' ? fromHex(payload) : null
  check('The payload', bytes ? bytes.length : sizeOf(payload), limits.payload_bytes, 'limits.payload_bytes')
  const body = bytes ? toBase64(bytes) : format === 'json' ? fromJson(payload) : payload
  const message = { topic, body, format }
  const most = Math.floor(limits.payload_bytes * 4 / 3) + limits.line_bytes - ENVELOPE
  check('The message as JSON', sizeOf(JSON.stringify(message)), most, '4/3 of limits.payload_bytes, and limits.line_bytes')
  return message
}

function check(what, size, limit, setting) {
  if (size > limit) throw new Error(`${what} has ${number(size)} bytes; the limit is ${number(limit)} (${setting}). Nothing was sent.`)
}

function fromJson(text) {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Error(`That is not JSON: ${error.message}. Nothing was sent.`)
  }
}

function fromHex(text) {
  const digits = text.replace(/\s+/g, '')
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) throw new Error('Bytes are pairs of hex digits, as in 00 ff 7a. Nothing was sent.')
  return Uint8Array.from({ length: digits.length / 2 }, (_, index) => parseInt(digits.slice(2 * index, 2 * index + 2), 16))
}

function toBase64(bytes) {
  let text = ''
  for (const value of bytes) text += String.fromCharCode(value)
  return { $base64: btoa(text) }
}
