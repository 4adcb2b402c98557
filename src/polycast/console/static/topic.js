// One topic: its numbers, its messages as they come, and those before them.

import { choice, empty, h, notice, put } from './dom.js'
import { VIEWS, guessFormat, show, toPayload } from './payload.js'
import { Tail, listen } from './tail.js'
import { toRates } from './topics.js'
import { ago, bytes, clock, number, rate } from './words.js'

const POLL_SECONDS = 0.5
const SHOWN = 500

export function topic(shared, name) {
  const { ubre, every } = shared
  const tail = new Tail(ubre, name)
  const said = notice()
  const facts = factList(['Rate', 'Last message', 'Sequence', 'Subscribers'])
  const messages = messageList(tail)
  const earlier = h('button', { type: 'button', hidden: true, click: () => goBack() }, 'Earlier messages')
  const none = empty('Waiting for a first message on this topic.')
  const follow = followButton()
  let rates = new Map()
  let live = false

  async function look() {
    const answer = await ubre.request('polycast/topics', { topic: name })
    const [row] = answer.topics
    if (row) {
      rates = toRates(rates, answer)
      facts.put('Rate', `${rate(rates.get(name)?.rate)}/s`)
      facts.put('Last message', row.last ? ago(row.last, answer.time) : 'before the start')
      facts.put('Sequence', number(row.sequence - 1))
      facts.put('Subscribers', number(row.subscribers))
      if (follow.on && !live) await readOn(row.sequence)
    }
    none.hidden = messages.count > 0
    earlier.hidden = live || !tail.hasEarlier
  }

  async function readOn(end) {
    try {
      const { rows, skipped } = await tail.newer(end)
      if (rows.length) messages.addNewer(rows, skipped)
      said.say('')
    } catch (error) {
      if (error.message.startsWith('NotKept')) hearLive()
      else said.say(error.message, true)
    }
  }

  function hearLive() {
    live = true
    said.say('This broker keeps no log: you see what comes while you look.')
    shared.ending(listen(ubre, name, body => {
      if (follow.on) messages.addNewer([{ time: new Date().toISOString(), format: guessFormat(body), body }], 0)
      none.hidden = true
    }))
  }

  async function goBack() {
    earlier.disabled = true
    try {
      const rows = await tail.earlier()
      messages.addEarlier(rows)
      said.say(rows.length ? '' : 'There is nothing before that in the log.')
    } catch (error) {
      said.say(error.message, true)
    }
    earlier.disabled = false
    earlier.hidden = !tail.hasEarlier
  }

  every(POLL_SECONDS, look)
  return h('div', { class: 'page' },
    h('p', { class: 'crumb' }, h('a', { href: '#/topics' }, 'Topics')),
    h('div', { class: 'title' }, h('h1', { class: 'name' }, name || '(empty)'), h('div', { class: 'row' },
      follow.element, h('a', { class: 'button', href: `#/publish?topic=${encodeURIComponent(name)}` }, 'Publish here'))),
    facts.element,
    h('div', { class: 'row spread' }, h('h2', {}, 'Messages'), choice('Show payloads as', VIEWS, 'auto', messages.view)),
    said.element, messages.element, none, earlier)
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

function factList(names) {
  const values = Object.fromEntries(names.map(name => [name, h('dd', {}, '–')]))
  return {
    element: h('dl', { class: 'tiles small' }, names.map(name => h('div', { class: 'tile' }, h('dt', {}, name), values[name]))),
    put: (name, text) => put(values[name], text),
  }
}

/** The newest first. */
function messageList(tail) {
  const element = h('ol', { class: 'messages', 'aria-label': 'Messages, the newest first' })
  let view = 'auto'
  const entries = []

  function toEntry(row) {
    const payload = toPayload(row.body, row.format)
    const place = h('div', { class: 'payload' }, show(payload, view))
    const sequence = row.sequence === undefined ? null : `#${number(row.sequence)}`
    const meta = [sequence, clock(row.time), row.dialect, row.format, bytes(payload.data.length)]
    const item = h('li', {}, h('p', { class: 'meta' }, meta.filter(Boolean).map(word => h('span', {}, word))), place)
    return { item, sequence: row.sequence, redraw: () => place.replaceChildren(show(payload, view)) }
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
      if (skipped > 0) element.prepend(h('li', { class: 'gap' }, `${number(skipped)} messages went by faster than they are shown`))
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
