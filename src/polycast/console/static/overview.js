// The overview: what goes in and out, and how the log and the pipelines are.

import { chart } from './chart.js'
import { choice, h, put } from './dom.js'
import { DIALECTS, sums } from './samples.js'
import { pipelineTable } from './standing.js'
import { table } from './table.js'
import { bytes, milliseconds, number, rate, span } from './words.js'

const SPAN_SECONDS = 120
const LOG_SECONDS = 5
const perSecond = { messages: value => rate(value), bytes: value => bytes(value) }

export function overview({ samples, sampled, every, ubre, ending }) {
  let unit = 'messages'
  const charts = { in: chart('In, per second'), out: chart('Out, per second') }
  const tiles = tileSet(['Connections', 'Messages in', 'Messages out', 'Queued', 'Topics', 'Log', 'Fsync', 'Up'])
  const dialects = dialectTable()
  const listeners = listenerTable()
  const pipelines = pipelineTable()
  let kept = null

  function draw() {
    const stats = samples.stats
    for (const way of ['in', 'out']) drawChart(charts[way], samples, way, unit)
    tiles.put('Connections', number(stats.connections))
    tiles.put('Messages in', rate(samples.total('messages_in')), 'per second')
    tiles.put('Messages out', rate(samples.total('messages_out')), 'per second')
    tiles.put('Queued', bytes(stats.listeners.reduce((sum, row) => sum + row.queue_bytes, 0)), 'to be sent')
    tiles.put('Topics', number(stats.topics_known))
    tiles.put('Up', span(stats.uptime_seconds))
    tiles.put('Fsync', milliseconds(samples.fsync), kept ? 'mean, lately' : '')
    dialects.show(toDialects(samples))
    listeners.show(stats.addresses ?? [])
  }

  sampled(draw)
  every(LOG_SECONDS, async () => {
    kept = await ubre.request('polycast/log').catch(error => {
      if (!error.message.startsWith('NotKept')) throw error
      return null
    })
    if (kept) tiles.put('Log', bytes(kept.bytes), `${number(kept.next - kept.first)} messages`)
    else tiles.put('Log', 'none', 'nothing is kept')
  })
  every(2, async () => pipelines.show((await ubre.request('polycast/pipelines')).pipelines))
  ending(() => Object.values(charts).forEach(each => each.end()))

  const units = choice('Unit of the charts', [['messages', 'Messages'], ['bytes', 'Bytes']], unit, chosen => {
    unit = chosen
    if (samples.stats) draw()
  })
  return h('div', { class: 'page' },
    h('div', { class: 'title' }, h('h1', {}, 'Overview'), units),
    tiles.element,
    h('div', { class: 'pair' }, charts.in.element, charts.out.element),
    h('section', {}, h('h2', {}, 'Dialects'), h('div', { class: 'card' }, dialects.element)),
    h('section', {}, h('h2', {}, 'Pipelines'), pipelines.element),
    h('section', {}, h('h2', {}, 'Listeners'), h('div', { class: 'card' }, listeners.element)))
}

function drawChart(drawn, samples, way, unit) {
  const to = samples.stats.uptime_seconds
  const from = to - SPAN_SECONDS
  const name = `${unit}_${way}`
  const series = DIALECTS.map((dialect, color) => {
    const points = samples.list.filter(({ time }) => time >= from).map(({ time, rates }) => [time, rates[dialect]?.[name] ?? 0])
    return { name: dialect, color, points, now: perSecond[unit](points.at(-1)?.[1] ?? 0) }
  }).filter(({ name: dialect }) => samples.dialects().includes(dialect))
  const label = `${unit} ${way} per second, by dialect`
  const ticks = [[from, '2 min ago'], [to, 'now']]
  drawn.draw(series, { from, to, label, text: perSecond[unit], ticks, base: unit === 'bytes' ? 1024 : 1000 })
}

function tileSet(names) {
  const tiles = Object.fromEntries(names.map(name => [name, { value: h('dd', {}, '–'), note: h('dd', { class: 'soft' }) }]))
  const element = h('dl', { class: 'tiles' }, names.map(name =>
    h('div', { class: 'tile' }, h('dt', {}, name), tiles[name].value, tiles[name].note)))
  return {
    element,
    put(name, value, note = '') {
      put(tiles[name].value, value)
      put(tiles[name].note, note)
    },
  }
}

function toDialects(samples) {
  const counts = sums(samples.stats)
  return samples.dialects().map(dialect => ({ dialect, ...counts[dialect], rates: samples.newest?.rates[dialect] }))
}

function dialectTable() {
  return table('What went through, by dialect', [
    { title: 'Dialect', text: row => row.dialect },
    { title: 'Connections', number: true, text: row => number(row.open), value: row => row.open },
    { title: 'In/s', number: true, text: row => rate(row.rates?.messages_in), value: row => row.rates?.messages_in },
    { title: 'Out/s', number: true, text: row => rate(row.rates?.messages_out), value: row => row.rates?.messages_out },
    { title: 'Messages in', number: true, text: row => number(row.messages_in), value: row => row.messages_in },
    { title: 'Messages out', number: true, text: row => number(row.messages_out), value: row => row.messages_out },
    { title: 'Bytes in', number: true, text: row => bytes(row.bytes_in), value: row => row.bytes_in },
    { title: 'Bytes out', number: true, text: row => bytes(row.bytes_out), value: row => row.bytes_out },
    { title: 'Queued', number: true, text: row => bytes(row.queue_bytes), value: row => row.queue_bytes },
  ], row => row.dialect)
}

function listenerTable() {
  return table('Where the broker listens', [
    { title: 'Listener', text: row => row.listener },
    { title: 'Address', class: 'mono', text: row => row.address },
  ], row => `${row.listener} ${row.address}`)
}
