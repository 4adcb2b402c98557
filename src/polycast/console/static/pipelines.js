// Pipelines: their progress, the results of the traffic pipeline, and SQL queries.

import { empty, h } from './dom.js'
import { sqlBox } from './sql.js'
import { table } from './table.js'
import { traffic } from './traffic.js'
import { NONE, number, rate, span } from './words.js'

const POLL_SECONDS = 2
const SILENT_SECONDS = 60

export function pipelines(shared) {
  return h('div', { class: 'page' },
    h('div', { class: 'title' }, h('h1', {}, 'Pipelines')), pipelineTable(shared),
    h('section', {}, h('h2', {}, 'Traffic'), traffic(shared)),
    h('section', {}, h('h2', {}, 'SQL over the log'), sqlBox(shared)))
}

/** An element that polls the broker. Values that a pipeline does not report stay empty. */
export function pipelineTable({ ubre, every }) {
  const rows = table('Pipelines', [
    { title: 'Pipeline', text: row => row.query },
    { title: 'State', text: toState },
    { title: 'Batch', number: true, text: row => number(row.batch), value: row => row.batch ?? -1 },
    { title: 'Offset', number: true, text: row => number(row.offset), value: row => row.offset },
    { title: 'Lag', number: true, text: row => number(row.lag), value: row => row.lag },
    { title: 'Rows in/s', number: true, text: row => rate(row.input_rows_per_second), value: row => row.input_rows_per_second ?? -1 },
    { title: 'Rows done/s', number: true, text: row => rate(done(row)), value: row => done(row) ?? -1 },
    { title: 'Reported', number: true, text: row => `${span(row.age_seconds)} ago`, value: row => row.age_seconds },
    { title: 'Last error', class: 'wrap', text: row => row.error || NONE },
  ], row => row.query)
  const card = h('div', { class: 'card', hidden: true }, rows.element)
  const none = empty('No pipeline has reported its progress. “polycast up” or “polycast pipeline run NAME” starts pipelines.')
  every(POLL_SECONDS, async () => {
    const found = (await ubre.request('polycast/pipelines')).pipelines
    card.hidden = !found.length
    none.hidden = Boolean(found.length)
    rows.show(found)
  })
  return h('div', {}, card, none)
}

function done(row) {
  return row.processed_rows_per_second ?? row.rows_per_second
}

/** A running pipeline reports at least once in SILENT_SECONDS. */
function toState(row) {
  return row.state === 'running' && row.age_seconds > SILENT_SECONDS ? 'silent' : row.state ?? NONE
}
