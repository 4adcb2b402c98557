// Topics: the last active ones, or those whose name contains the search text.

import { empty, h, put } from './dom.js'
import { table } from './table.js'
import { ago, number, rate } from './words.js'

const SHOWN = 200
const POLL_SECONDS = 1
const SEARCH_CHARACTERS = 200

export function topics({ ubre, every }, _, query) {
  let search = query.get('search') ?? ''
  let rates = new Map()
  const count = h('p', { class: 'soft', role: 'status' })
  const rows = topicTable()
  const none = empty('')
  const card = h('div', { class: 'card', hidden: true }, rows.element)

  async function refresh() {
    const requested = search
    const response = await ubre.request('polycast/topics', { search: requested, limit: SHOWN })
    if (requested !== search) return
    rates = toRates(rates, response)
    rows.show(response.topics.map(row => ({ ...row, now: response.time, rate: rates.get(row.topic)?.rate })))
    card.hidden = !response.topics.length
    none.hidden = Boolean(response.topics.length)
    put(none, search ? `No topic contains “${search}”.` : 'No messages yet. The page “Publish” sends one.')
    put(count, toCount(response, search))
  }

  every(POLL_SECONDS, refresh)
  const input = h('input', {
    type: 'search', id: 'search', value: search, maxlength: SEARCH_CHARACTERS, placeholder: 'part of a name', autocomplete: 'off',
    input: () => {
      search = input.value
      history.replaceState(null, '', search ? `#/topics?search=${encodeURIComponent(search)}` : '#/topics')
      if (ubre.open) refresh().catch(() => {})
    },
  })
  return h('div', { class: 'page' },
    h('div', { class: 'title' }, h('h1', {}, 'Topics'), h('div', { class: 'field row' }, h('label', { for: 'search' }, 'Search'), input)),
    count, card, none)
}

function topicTable() {
  return table('Topics', [
    { title: 'Topic', value: row => row.topic, make: toLink },
    { title: 'Rate/s', number: true, text: row => rate(row.rate), value: row => row.rate ?? -1 },
    { title: 'Last message', number: true, text: toLast, value: row => Date.parse(row.last) || 0 },
    { title: 'Sequence', number: true, text: row => number(row.sequence - 1), value: row => row.sequence },
    { title: 'Subscribers', number: true, text: row => number(row.subscribers), value: row => row.subscribers },
  ], row => row.topic)
}

function toLink({ topic }) {
  return h('a', { class: 'name', href: `#/topic/${encodeURIComponent(topic)}` }, topic || '(empty)')
}

function toLast({ last, now }) {
  return last ? ago(last, now) : 'before the start'
}

/** Messages per second of each topic, from its sequences in two responses. */
export function toRates(before, { topics: rows, time }) {
  return new Map(rows.map(({ topic, sequence }) => {
    const old = before.get(topic)
    const seconds = old ? time - old.time : 0
    if (old && seconds < 0.2) return [topic, old]
    return [topic, { sequence, time, rate: seconds > 0 ? Math.max(0, sequence - old.sequence) / seconds : undefined }]
  }))
}

function toCount({ topics: rows, total }, search) {
  const shown = `${number(rows.length)} of ${number(total)} topics`
  if (rows.length < SHOWN) return search ? `${shown} ${rows.length === 1 ? 'contains' : 'contain'} “${search}”` : shown
  return `${shown}: the last active ones. A search finds others.`
}
