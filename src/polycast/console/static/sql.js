// SQL queries, run by the Spark process of `polycast up`.

import { field, form, h, notice, put } from './dom.js'
import { number, sizeOf } from './words.js'

const QUERY_BYTES = 65_536
const ROWS = 1000
const EXAMPLE = 'SELECT dialect, count(*) AS messages\nFROM messages\nGROUP BY dialect\nORDER BY messages DESC'
const REASONS = {
  NotFound: 'Spark is not running: “polycast up” starts it, which takes some seconds.',
  Timeout: 'Spark did not respond in time; select fewer messages.',
  Gone: 'Spark ended before it responded.',
}

export function sqlBox({ ubre }) {
  const status = notice()
  const query = h('textarea', { id: 'query', rows: '5', spellcheck: 'false', class: 'mono', required: true })
  query.value = EXAMPLE
  const limit = h('input', { id: 'limit', type: 'number', min: '1', max: String(ROWS), value: '100', required: true })
  const button = h('button', { class: 'primary' }, 'Run')
  const result = h('div')

  async function run() {
    button.disabled = true
    const began = performance.now()
    status.show('Spark runs the query …')
    try {
      checkQuery(query.value)
      const response = await ubre.request('spark/sql', { query: query.value, limit: Number(limit.value) })
      result.replaceChildren(toTable(response))
      const seconds = ((performance.now() - began) / 1000).toFixed(1)
      status.show(`${number(response.rows.length)} rows${response.more ? ', and more exist' : ''}, in ${seconds} s.`)
    } catch (error) {
      result.replaceChildren()
      status.show(REASONS[error.message] ?? error.message, true)
    }
    button.disabled = false
  }

  return form(run,
    field('query', 'Query; the table is “messages”', query),
    h('div', { class: 'row' }, field('limit', 'Maximum rows', limit), button),
    status.element, result)
}

function checkQuery(text) {
  const size = sizeOf(text)
  if (size > QUERY_BYTES) throw new Error(`The query has ${number(size)} bytes; the limit is ${number(QUERY_BYTES)}. Nothing was sent.`)
}

function toTable({ columns, rows }) {
  const numbers = columns.map((_, index) => rows.length > 0 && rows.every(row => row[index] === null || typeof row[index] === 'number'))
  const head = columns.map((name, index) => h('th', { scope: 'col', class: numbers[index] ? 'number' : '' }, name))
  const body = rows.map(row => h('tr', {}, row.map((value, index) => toCell(value, numbers[index]))))
  return h('div', { class: 'result', tabindex: '0', role: 'region', 'aria-label': 'Result' },
    h('table', { class: 'plain' }, h('thead', {}, h('tr', {}, head)), h('tbody', {}, body)))
}

function toCell(value, isNumber) {
  const cell = h('td', { class: isNumber ? 'number' : 'wrap' })
  put(cell, value === null ? 'null' : typeof value === 'object' ? JSON.stringify(value) : String(value))
  return cell
}
