// A question in SQL, answered by the Spark process of `polycast up`.

import { h, notice, put } from './dom.js'
import { field } from './publish.js'
import { number, sizeOf } from './words.js'

const QUERY_BYTES = 65_536
const ROWS = 1000
const EXAMPLE = 'SELECT dialect, count(*) AS messages\nFROM messages\nGROUP BY dialect\nORDER BY messages DESC'
const WHY = {
  NotFound: 'Spark is not running: “polycast up” starts it, and it takes a moment to come up.',
  Timeout: 'Spark did not answer in time; a narrower query may.',
  Gone: 'Spark went away before it answered.',
}

export function sqlBox({ ubre }) {
  const said = notice()
  const query = h('textarea', { id: 'query', rows: '5', spellcheck: 'false', class: 'mono', required: true })
  query.value = EXAMPLE
  const limit = h('input', { id: 'limit', type: 'number', min: '1', max: String(ROWS), value: '100', required: true })
  const button = h('button', { class: 'primary' }, 'Run')
  const result = h('div')

  async function run() {
    button.disabled = true
    const began = performance.now()
    said.say('Spark is at work …')
    try {
      checkQuery(query.value)
      const answer = await ubre.request('spark/sql', { query: query.value, limit: Number(limit.value) })
      result.replaceChildren(toTable(answer))
      const seconds = ((performance.now() - began) / 1000).toFixed(1)
      said.say(`${number(answer.rows.length)} rows${answer.more ? ', and there are more' : ''}, in ${seconds} s.`)
    } catch (error) {
      result.replaceChildren()
      said.say(toReason(error.message), true)
    }
    button.disabled = false
  }

  return h('form', { class: 'card form', submit: event => {
    event.preventDefault()
    run()
  } },
  field('query', 'Query; the table is “messages”', query),
  h('div', { class: 'row' }, field('limit', 'Rows at most', limit), button),
  said.element, result)
}

function checkQuery(text) {
  const size = sizeOf(text)
  if (size > QUERY_BYTES) throw new Error(`The query has ${number(size)} bytes; the limit is ${number(QUERY_BYTES)}. Nothing was sent.`)
}

function toReason(words) {
  return WHY[words] ?? words
}

function toTable({ columns, rows }) {
  const numbers = columns.map((_, place) => rows.length > 0 && rows.every(row => row[place] === null || typeof row[place] === 'number'))
  const head = columns.map((name, place) => h('th', { scope: 'col', class: numbers[place] ? 'number' : '' }, name))
  const body = rows.map(row => h('tr', {}, row.map((value, place) => toCell(value, numbers[place]))))
  return h('div', { class: 'result', tabindex: '0', role: 'region', 'aria-label': 'Result' },
    h('table', { class: 'plain' }, h('thead', {}, h('tr', {}, head)), h('tbody', {}, body)))
}

function toCell(value, isNumber) {
  const cell = h('td', { class: isNumber ? 'number' : 'wrap' })
  put(cell, value === null ? 'null' : typeof value === 'object' ? JSON.stringify(value) : String(value))
  return cell
}
