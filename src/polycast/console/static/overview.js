// The overview: rates by dialect, the log, the pipelines and the listeners.

import { chart } from './chart.js'
import { choice, h, tileSet } from './dom.js'
import { pipelineTable } from './pipelines.js'
import { DIALECTS, sums } from './samples.js'
import { table } from './table.js'
import { bytes, milliseconds, number, rate, span } from './words.js'

const SPAN_SECONDS = 120
const LOG_SECONDS = 5
const perSecond = { messages: value => rate(value), bytes: value => bytes(value) }

export function overview(shared) {
  const { samples, sampled, every, ubre, cleanup } = shared
  let unit = 'messages'
  const charts = { in: chart('In, per second'), out: chart('Out, per second') }
  const tiles = tileSet(['Connections', 'Messages in', 'Messages out', 'Queued', 'Topics', 'Log', 'Fsync', 'Up'])
  const dialects = dialectTable()
  const listeners = listenerTable()
  const pipelines = pipelineTable(shared)
  let log = null

  function draw() {
    const stats = samples.stats
    for (const way of ['in', 'out']) drawChart(charts[way], samples, way, unit)
    tiles.put('Connections', number(stats.connections))
    tiles.put('Messages in', rate(samples.total('messages_in')), 'per second')
    tiles.put('Messages out', rate(samples.total('messages_out')), 'per second')
    tiles.put('Queued', bytes(stats.listeners.reduce((sum, row) => sum + row.queue_bytes, 0)), 'not sent yet')
    tiles.put('Topics', number(stats.topics_known))
    tiles.put('Up', span(stats.uptime_seconds))
    tiles.put('Fsync', milliseconds(samples.fsync), log ? 'mean, recent' : '')
    dialects.show(toDialects(samples))
    listeners.show(stats.addresses ?? [])
  }

  sampled(draw)
  every(LOG_SECONDS, async () => {
    log = await ubre.request('polycast/log').catch(error => {
      if (!error.message.startsWith('NoLog')) throw error
      return null
    })
    if (log) tiles.put('Log', bytes(log.bytes), `${number(log.next - log.first)} messages`)
    else tiles.put('Log', 'none', 'the broker has no log')
  })
  cleanup(() => Object.values(charts).forEach(each => each.end()))

  const units = choice('Unit of the charts', [['messages', 'Messages'], ['bytes', 'Bytes']], unit, chosen => {
    unit = chosen
    if (samples.stats) draw()
  })
  return h('div', { class: 'page' },
    h('div', { class: 'title' }, h('h1', {}, 'Overview'), units),
    tiles.element,
    h('div', { class: 'pair' }, charts.in.element, charts.out.element),
    h('section', {}, h('h2', {}, 'Dialects'), h('div', { class: 'card' }, dialects.element)),
    h('section', {}, h('h2', {}, 'Pipelines'), pipelines),
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

function toDialects(samples) {
  const counts = sums(samples.stats)
  return samples.dialects().map(dialect => ({ dialect, ...counts[dialect], rates: samples.newest?.rates[dialect] }))
}

function dialectTable() {
  return table('Traffic by dialect', [
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
  return table('Listeners', [
    { title: 'Listener', text: row => row.listener },
    { title: 'Address', class: 'mono', text: row => row.address },
  ], row => `${row.listener} ${row.address}`)
}
