// Publish: one message, in any format, as if it came in any dialect.

import { h, notice } from './dom.js'
import { DIALECTS } from './samples.js'
import { number, sizeOf } from './words.js'

const FORMATS = [['text', 'Text'], ['json', 'JSON'], ['bytes', 'Bytes, as hex'], ['none', 'No payload']]
const LIMITS = { topic_bytes: 1024, payload_bytes: 16 * 1024 * 1024, line_bytes: 65_536 }
/** Until the broker has told its own. */
const ENVELOPE = 200
/** What a request has around the message. */

export function publish({ ubre, samples }, _, query) {
  const said = notice()
  const topic = h('input', { id: 'topic', required: true, autocomplete: 'off', spellcheck: 'false', value: query.get('topic') ?? '' })
  const payload = h('textarea', { id: 'payload', rows: '8', spellcheck: 'false' })
  const format = select('format', FORMATS, chosen => { payload.disabled = chosen === 'none' })
  const dialect = select('dialect', DIALECTS.map(name => [name, name]))
  dialect.value = 'ubre'

  async function send() {
    try {
      const message = toMessage(topic.value, payload.value, format.value, samples.stats?.limits ?? LIMITS)
      const told = await ubre.request('polycast/publish', { ...message, dialect: dialect.value })
      const place = told.offset === null ? 'not kept: there is no log' : `offset ${number(told.offset)}`
      said.say(`Published as sequence ${number(told.sequence)} of its topic, ${place}.`)
    } catch (error) {
      said.say(error.message, true)
    }
  }

  return h('div', { class: 'page' }, h('div', { class: 'title' }, h('h1', {}, 'Publish')),
    h('form', { class: 'card form', submit: event => {
      event.preventDefault()
      send()
    } },
    field('topic', 'Topic', topic),
    field('payload', 'Payload', payload),
    h('div', { class: 'pair' }, field('format', 'Format', format), field('dialect', 'As dialect', dialect)),
    h('p', { class: 'soft' }, 'Only ubre tells formats apart; as any other dialect the payload is bytes.'),
    h('div', { class: 'row' }, h('button', { class: 'primary' }, 'Publish')), said.element))
}

export function field(id, label, input) {
  return h('div', { class: 'field' }, h('label', { for: id }, label), input)
}

function select(id, options, changed = () => {}) {
  const element = h('select', { id, change: () => changed(element.value) },
    options.map(([value, text]) => h('option', { value }, text)))
  return element
}

/** The body of the request. What cannot be published is thrown as an Error with a line for people. */
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
  return Uint8Array.from({ length: digits.length / 2 }, (_, place) => parseInt(digits.slice(2 * place, 2 * place + 2), 16))
}

function toBase64(bytes) {
  let text = ''
  for (const value of bytes) text += String.fromCharCode(value)
  return { $base64: btoa(text) }
}
