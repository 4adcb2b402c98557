// The pipelines as a table. What a pipeline does not tell is left open.

import { empty, h } from './dom.js'
import { table } from './table.js'
import { NONE, number, rate, span } from './words.js'

const SILENT_SECONDS = 60

export function pipelineTable() {
  const rows = table('Pipelines', [
    { title: 'Pipeline', text: row => row.query },
    { title: 'State', text: toState },
    { title: 'Batch', number: true, text: row => number(row.batch), value: row => row.batch ?? -1 },
    { title: 'Offset', number: true, text: row => number(row.offset), value: row => row.offset },
    { title: 'Lag', number: true, text: row => number(row.lag), value: row => row.lag },
    { title: 'Rows in/s', number: true, text: row => rate(row.input_rows_per_second), value: row => row.input_rows_per_second ?? -1 },
    { title: 'Rows done/s', number: true, text: row => rate(done(row)), value: row => done(row) ?? -1 },
    { title: 'Told', number: true, text: row => `${span(row.age_seconds)} ago`, value: row => row.age_seconds },
    { title: 'Last error', class: 'wrap', text: row => row.error || NONE },
  ], row => row.query)
  const card = h('div', { class: 'card', hidden: true }, rows.element)
  const none = empty('No pipeline has told how far it is. “polycast up” runs them, or “polycast pipeline run NAME”.')
  return {
    element: h('div', {}, card, none),
    show(pipelines) {
      card.hidden = !pipelines.length
      none.hidden = Boolean(pipelines.length)
      rows.show(pipelines)
    },
  }
}

function done(row) {
  return row.processed_rows_per_second ?? row.rows_per_second
}

/** Whoever runs tells so again and again. */
function toState(row) {
  return row.state === 'running' && row.age_seconds > SILENT_SECONDS ? 'silent' : row.state ?? NONE
}
