// Pipelines: how far they are, what the traffic pipeline found, and questions to Spark.

import { h } from './dom.js'
import { sqlBox } from './sql.js'
import { pipelineTable } from './standing.js'
import { traffic } from './traffic.js'

const POLL_SECONDS = 2

export function pipelines(shared) {
  const { ubre, every } = shared
  const rows = pipelineTable()
  every(POLL_SECONDS, async () => rows.show((await ubre.request('polycast/pipelines')).pipelines))
  return h('div', { class: 'page' },
    h('div', { class: 'title' }, h('h1', {}, 'Pipelines')), rows.element,
    h('section', {}, h('h2', {}, 'Traffic'), traffic(shared)),
    h('section', {}, h('h2', {}, 'SQL over the log'), sqlBox(shared)))
}
