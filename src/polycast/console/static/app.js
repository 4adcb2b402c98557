// The frame around the pages: routing, the connection to the broker, and the state that all pages share.

import { empty, put } from './dom.js'
import { Refused, Ubre } from './ubre.js'
import { Samples } from './samples.js'
import { connections } from './connections.js'
import { nodes } from './nodes.js'
import { overview } from './overview.js'
import { pipelines } from './pipelines.js'
import { publish } from './publish.js'
import { topic } from './topic.js'
import { topics } from './topics.js'

const PAGES = { '': overview, topics, topic, connections, nodes, publish, pipelines }
const TITLES = { '': 'Overview', topics: 'Topics', topic: 'Topic', connections: 'Connections', nodes: 'Nodes', publish: 'Publish', pipelines: 'Pipelines' }
const TOKEN = 'polycast.token'
const SAMPLE_SECONDS = 1
const TRIES = 2
/** Failed connections before the form for a token appears. */

const main = document.getElementById('main')
const state = document.getElementById('state')
const trouble = document.getElementById('trouble')
const entry = document.getElementById('entry')

// -- the token --------------------------------------------------------------------------------------------

/** Moves the token from the page address to the storage of this tab: addresses are copied, and stay in histories. */
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

/** Calls `act` now and at this interval, except in a hidden tab. Returns a function that stops it. */
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

/** Shows the error of a refused request above the page. A lost connection is shown in the header. */
function report(loop, error) {
  if (error && !(error instanceof Refused)) throw error
  if (error && ubre.open) troubles.set(loop, error.message)
  else troubles.delete(loop)
  const [first = ''] = troubles.values()
  trouble.hidden = !first
  put(trouble, first && `The broker refuses a request of this page: ${first}`)
}

// -- pages ------------------------------------------------------------------------------------------------

const samples = new Samples()
const shared = { ubre, samples }
let cleanups = []
const observers = new Set()

every(SAMPLE_SECONDS, async () => {
  samples.add(await ubre.request('polycast/stats'))
  put(document.getElementById('version'), samples.stats.version)
  document.querySelector('nav a[href="#/nodes"]').hidden = !samples.stats.node
  for (const observe of observers) observe()
})

/** For pages: intervals, observers and subscriptions end when another page is shown. */
shared.every = (seconds, act) => cleanups.push(every(seconds, act))
shared.sampled = observe => {
  observers.add(observe)
  cleanups.push(() => observers.delete(observe))
  if (samples.stats) observe()
}
shared.cleanup = clean => cleanups.push(clean)

function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?')
  const cut = path.indexOf('/')
  const [name, rest] = cut < 0 ? [path, ''] : [path.slice(0, cut), path.slice(cut + 1)]
  if (name === 'main') return  // the link that skips to the content
  for (const clean of cleanups) clean()
  cleanups = []
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
