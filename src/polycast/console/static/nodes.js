// Nodes: the stream of a cluster and its nodes, as the node of this page sees them.

import { empty, h, tileSet } from './dom.js'
import { table } from './table.js'
import { number } from './words.js'

const POLL_SECONDS = 1

export function nodes({ ubre, every, sampled, samples }) {
  const tiles = tileSet(['Node', 'Leader', 'Messages', 'Servers'])
  const rows = nodeTable()
  const card = h('div', { class: 'card' }, rows.element)
  const single = empty('This broker is not a node of a cluster.')
  single.hidden = true

  sampled(() => {
    single.hidden = Boolean(samples.stats.node)
    card.hidden = tiles.element.hidden = !samples.stats.node
  })

  async function refresh() {
    if (!samples.stats?.node) return
    const { stream, nodes } = await ubre.request('polycast/cluster')
    tiles.put('Node', samples.stats.node, 'of this page')
    tiles.put('Leader', stream.leader ?? 'none', stream.leader ? '' : 'publishers wait')
    tiles.put('Messages', number(stream.last), `in ${stream.name}`)
    tiles.put('Servers', number(stream.replicas.length), stream.replicas.join(', '))
    rows.show(nodes)
  }

  every(POLL_SECONDS, refresh)
  return h('div', { class: 'page' }, h('div', { class: 'title' }, h('h1', {}, 'Nodes')), tiles.element, card, single)
}

function nodeTable() {
  return table('Nodes', [
    { title: 'Name', class: 'mono', text: row => row.node, value: row => row.node },
    { title: 'State', text: row => row.state },
    { title: 'Next offset', number: true, text: row => number(row.offset), value: row => row.offset },
    { title: 'Sequence', number: true, text: row => number(row.sequence), value: row => row.sequence },
    { title: 'Lag', number: true, text: row => number(row.lag), value: row => row.lag },
    { title: 'First offset', number: true, text: row => number(row.first), value: row => row.first },
    { title: 'Connections', number: true, text: row => number(row.connections), value: row => row.connections },
  ], row => row.node)
}
