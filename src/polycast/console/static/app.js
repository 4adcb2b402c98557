// The frame: which page is shown, whether the broker answers, and what all pages share.

import { empty, put } from './dom.js'
import { Refused, Ubre } from './ubre.js'
import { Samples } from './samples.js'
import { connections } from './connections.js'
import { overview } from './overview.js'
import { pipelines } from './pipelines.js'
import { publish } from './publish.js'
import { topic } from './topic.js'
import { topics } from './topics.js'

const PAGES = { '': overview, topics, topic, connections, publish, pipelines }
const TITLES = { '': 'Overview', topics: 'Topics', topic: 'Topic', connections: 'Connections', publish: 'Publish', pipelines: 'Pipelines' }
const TOKEN = 'polycast.token'
const SAMPLE_SECONDS = 1
const TRIES = 2
/** So often in vain, and the page asks whether there is a token. */

const main = document.getElementById('main')
const state = document.getElementById('state')
const trouble = document.getElementById('trouble')
const entry = document.getElementById('entry')

// -- the token --------------------------------------------------------------------------------------------

/** From the address of the page to where only this tab finds it: an address is copied and kept in histories. */
function takeToken() {
  const address = new URL(location.href)
  const token = address.searchParams.get('token')
  if (token === null) return
  sessionStorage.setItem(TOKEN, token)
  address.searchParams.delete('token')
  history.replaceState(null, '', address)
}

function toAddress() {
  const address = new URL('ubre', location.origin + location.pathname)
  address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:'
  const token = sessionStorage.getItem(TOKEN)
  if (token) address.searchParams.set('token', token)
  return address
}

entry.addEventListener('submit', event => {
  event.preventDefault()
  sessionStorage.setItem(TOKEN, document.getElementById('token').value)
  ubre.connect()
})

// -- the connection ---------------------------------------------------------------------------------------

let failures = 0
let everOpen = false

const ubre = new Ubre(toAddress, (now, seconds) => {
  const words = { connecting: 'connecting', open: 'live', waiting: `no connection, next try in ${seconds} s` }
  put(state, words[now])
  state.className = `state ${now}`
  if (now === 'open') [failures, everOpen] = [0, true]
  if (now === 'waiting') failures += 1
  entry.hidden = everOpen || failures < TRIES
  if (now === 'open') wake()
})

/** Acts now, then again and again while its page is shown; a hidden tab rests. Returns how to end it. */
function every(seconds, act) {
  const loop = { stopped: false, go: () => {}, timer: 0 }
  loops.add(loop)
  const run = async () => {
    while (!loop.stopped) {
      if (!document.hidden && ubre.open) await act().then(() => report(loop, ''), error => report(loop, error))
      await new Promise(done => {
        loop.go = done
        loop.timer = setTimeout(done, seconds * 1000)
      })
    }
  }
  run()
  return () => {
    loop.stopped = true
    clearTimeout(loop.timer)
    loops.delete(loop)
    report(loop, '')
  }
}

const loops = new Set()
const troubles = new Map()

function wake() {
  for (const loop of loops) {
    clearTimeout(loop.timer)
    loop.go()
  }
}

document.addEventListener('visibilitychange', () => document.hidden || wake())

/** What the broker refuses is told on top; the loss of the connection is seen there anyway. */
function report(loop, error) {
  if (error && !(error instanceof Refused)) throw error
  if (error && ubre.open) troubles.set(loop, error.message)
  else troubles.delete(loop)
  const [first = ''] = troubles.values()
  trouble.hidden = !first
  put(trouble, first && `The broker does not answer what this page asks: ${first}`)
}

// -- pages ------------------------------------------------------------------------------------------------

const samples = new Samples()
const shared = { ubre, samples, every: () => () => {}, sampled: () => () => {} }
let ends = []
const hearers = new Set()

every(SAMPLE_SECONDS, async () => {
  samples.add(await ubre.request('polycast/stats'))
  put(document.getElementById('version'), samples.stats.version)
  for (const hear of hearers) hear()
})

/** What a page begins ends with it. */
shared.every = (seconds, act) => ends.push(every(seconds, act))
shared.sampled = hear => {
  hearers.add(hear)
  ends.push(() => hearers.delete(hear))
  if (samples.stats) hear()
}
shared.ending = end => ends.push(end)

function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?')
  const cut = path.indexOf('/')
  const [name, rest] = cut < 0 ? [path, ''] : [path.slice(0, cut), path.slice(cut + 1)]
  if (name === 'main') return  // the link that skips to the content
  for (const end of ends) end()
  ends = []
  const page = Object.hasOwn(PAGES, name) ? PAGES[name] : null
  document.title = page && name ? `${TITLES[name]} · Polycast` : 'Polycast'
  main.replaceChildren(page ? page(shared, decode(rest), new URLSearchParams(query)) : empty('There is no such page.'))
  mark(name === 'topic' ? 'topics' : name)
}

function decode(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function mark(name) {
  for (const link of document.querySelectorAll('nav a')) {
    if (link.getAttribute('href') === `#/${name}`) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
}

document.querySelector('.skip').addEventListener('click', event => {
  event.preventDefault()
  main.focus()
})
addEventListener('hashchange', () => {
  route()
  scrollTo(0, 0)
})
takeToken()
route()
ubre.connect()
