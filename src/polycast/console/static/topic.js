// One topic: its counters, its live messages, and earlier messages from the log.

import { choice, empty, h, notice, put, tileSet } from './dom.js'
import { VIEWS, guessFormat, show, toPayload } from './payload.js'
import { Tail, follow } from './tail.js'
import { toRates } from './topics.js'
import { ago, bytes, clock, number, rate } from './words.js'

const POLL_SECONDS = 0.5
const SHOWN = 500

export function topic(shared, name) {
  const { ubre, every } = shared
  const tail = new Tail(ubre, name)
  const status = notice()
  const facts = tileSet(['Rate', 'Last message', 'Sequence', 'Subscribers'], 'small')
  const messages = messageList(tail)
  const earlier = h('button', { type: 'button', hidden: true, click: () => readEarlier() }, 'Earlier messages')
  const none = empty('No message on this topic yet.')
  const button = followButton()
  let rates = new Map()
  let live = false

  async function refresh() {
    const response = await ubre.request('polycast/topics', { topic: name })
    const [row] = response.topics
    if (row) {
      rates = toRates(rates, response)
      facts.put('Rate', `${rate(rates.get(name)?.rate)}/s`)
      facts.put('Last message', row.last ? ago(row.last, response.time) : 'before the start')
      facts.put('Sequence', number(row.sequence - 1))
      facts.put('Subscribers', number(row.subscribers))
      if (button.on && !live) await readNewer(row.sequence)
    }
    none.hidden = messages.count > 0
    earlier.hidden = live || !tail.hasEarlier
  }

  async function readNewer(end) {
    try {
      const { rows, skipped } = await tail.newer(end)
      if (rows.length) messages.addNewer(rows, skipped)
      status.show('')
    } catch (error) {
      if (error.message.startsWith('NoLog')) showLive()
      else status.show(error.message, true)
    }
  }

  function showLive() {
    live = true
    status.show('This broker has no log: the page shows live messages only.')
    shared.cleanup(follow(ubre, name, body => {
      if (button.on) messages.addNewer([{ time: new Date().toISOString(), format: guessFormat(body), body }], 0)
      none.hidden = true
    }))
  }

  async function readEarlier() {
    earlier.disabled = true
    await status.attempt(async () => {
      const rows = await tail.earlier()
      messages.addEarlier(rows)
      status.show(rows.length ? '' : 'The log has no earlier messages.')
    })
    earlier.disabled = false
    earlier.hidden = !tail.hasEarlier
  }

  every(POLL_SECONDS, refresh)
  return h('div', { class: 'page' },
    h('p', { class: 'crumb' }, h('a', { href: '#/topics' }, 'Topics')),
    h('div', { class: 'title' }, h('h1', { class: 'name' }, name || '(empty)'), h('div', { class: 'row' },
      button.element, h('a', { class: 'button', href: `#/publish?topic=${encodeURIComponent(name)}` }, 'Publish here'))),
    facts.element,
    h('div', { class: 'row spread' }, h('h2', {}, 'Messages'), choice('Show payloads as', VIEWS, 'auto', messages.view)),
    status.element, messages.element, none, earlier)
}

function followButton() {
  const self = { on: true, element: null }
  self.element = h('button', { type: 'button', 'aria-pressed': 'true', class: 'toggle', click: () => {
    self.on = !self.on
    self.element.setAttribute('aria-pressed', String(self.on))
    put(self.element, self.on ? 'Following' : 'Paused')
  } }, 'Following')
  return self
}

/** The newest first. */
function messageList(tail) {
  const element = h('ol', { class: 'messages', 'aria-label': 'Messages, the newest first' })
  let view = 'auto'
  const entries = []

  function toEntry(row) {
    const payload = toPayload(row.body, row.format)
    const box = h('div', { class: 'payload' }, show(payload, view))
    const sequence = row.sequence === undefined ? null : `#${number(row.sequence)}`
    const meta = [sequence, clock(row.time), row.dialect, row.format, bytes(payload.data.length)]
    const item = h('li', {}, h('p', { class: 'meta' }, meta.filter(Boolean).map(word => h('span', {}, word))), box)
    return { item, sequence: row.sequence, redraw: () => box.replaceChildren(show(payload, view)) }
  }

  function trim() {
    if (entries.length <= SHOWN) return
    for (const { item } of entries.splice(SHOWN)) item.remove()
    while (element.lastElementChild.classList.contains('gap')) element.lastElementChild.remove()
    tail.forget(entries.at(-1).sequence ?? null)
  }

  return {
    element,
    get count() {
      return entries.length
    },
    addNewer(rows, skipped) {
      if (skipped > 0) element.prepend(h('li', { class: 'gap' }, `${number(skipped)} messages skipped: the topic is too fast for this page`))
      for (const entry of rows.map(toEntry)) {
        entries.unshift(entry)
        element.prepend(entry.item)
      }
      trim()
    },
    addEarlier(rows) {
      for (const entry of rows.map(toEntry).reverse()) {
        entries.push(entry)
        element.append(entry.item)
      }
    },
    view(chosen) {
      view = chosen
      for (const entry of entries) entry.redraw()
    },
  }
}
