// Connections: the table of open connections with their queues, and a button that closes one.

import { empty, h, notice, put } from './dom.js'
import { table } from './table.js'
import { bytes, number, span } from './words.js'

const SHOWN = 500
const PATTERNS = 5
const POLL_SECONDS = 2

export function connections({ ubre, every }) {
  const status = notice()
  const count = h('p', { class: 'soft', role: 'status' })
  const dialog = confirmation(row => status.attempt(async () => {
    await ubre.request('polycast/close', { name: row.name })
    status.show(`The broker closes connection ${row.name}.`)
    await refresh()
  }))
  const rows = connectionTable(dialog.open)
  const none = empty('No connections.')
  none.hidden = true

  async function refresh() {
    const response = await ubre.request('polycast/connections', { limit: SHOWN, patterns: PATTERNS })
    rows.show(response.connections)
    none.hidden = Boolean(response.connections.length)
    put(count, `${number(response.connections.length)} of ${number(response.total)} connections; this page is one of them`)
  }

  every(POLL_SECONDS, refresh)
  return h('div', { class: 'page' }, h('div', { class: 'title' }, h('h1', {}, 'Connections')),
    status.element, count, h('div', { class: 'card' }, rows.element), none, dialog.element)
}

function connectionTable(close) {
  return table('Connections', [
    { title: 'Name', class: 'mono', text: row => row.name, value: row => row.name },
    { title: 'Dialect', text: row => row.dialect },
    { title: 'Listener', text: row => row.listener },
    { title: 'Address', class: 'mono', text: row => row.address || 'ipc' },
    { title: 'State', text: row => row.state },
    { title: 'Subscriptions', class: 'wrap name', text: toSubscriptions, value: row => row.subscriptions },
    { title: 'Queue', number: true, text: row => bytes(row.queue_bytes), value: row => row.queue_bytes },
    { title: 'In', number: true, text: row => number(row.messages_in), value: row => row.messages_in },
    { title: 'Out', number: true, text: row => number(row.messages_out), value: row => row.messages_out },
    { title: 'Open', number: true, text: row => span(row.open_seconds), value: row => row.open_seconds },
    { title: '', make: row => closeButton(row, close) },
  ], row => row.name)
}

function closeButton(row, close) {
  return h('button', { type: 'button', class: 'quiet', 'aria-label': `Close ${row.name}`, click: () => close(row) }, 'Close')
}

function toSubscriptions({ subscriptions, patterns = [] }) {
  if (!subscriptions) return 'none'
  const more = subscriptions - patterns.length
  return `${patterns.join(', ')}${more > 0 ? ` and ${number(more)} more` : ''}`
}

/** The dialog before a connection is closed. */
function confirmation(act) {
  let row = null
  const words = h('p')
  const element = h('dialog', { 'aria-labelledby': 'confirm-title', close: () => {
    if (element.returnValue === 'yes') act(row)
  } }, h('h2', { id: 'confirm-title' }, 'Close this connection?'), words,
  h('div', { class: 'row end' },
    h('button', { type: 'button', click: () => element.close('no') }, 'Cancel'),
    h('button', { type: 'button', class: 'danger', click: () => element.close('yes') }, 'Close connection')))
  return {
    element,
    open(chosen) {
      row = chosen
      put(words, `${row.name}, ${row.dialect}, ${row.address || 'ipc'}. The broker sends the queued messages first. The client may connect again.`)
      element.returnValue = ''
      element.showModal()
    },
  }
}
