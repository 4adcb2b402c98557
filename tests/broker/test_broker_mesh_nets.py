"""Whole meshes: random graphs, random subscriptions, bytes arriving in any order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.simulation import Client, Net, Node, Row
from polycast.model import Contains, Everything, Exact, Pattern, Prefix

NAMES = ["//room/a", "//room/b", "//chat", "plain/c", "plain"]
PATTERNS: list[Pattern] = [
    Contains("//room/"),
    Contains("//fwd/room/"),
    Contains("room"),
    Contains("//room/a"),
    Contains("//fwd/chat"),
    Contains("fwd"),
    Contains("plain"),
    Contains("//fwd/plain/"),
    Contains("no such topic"),
    Exact("//room/a"),
    Exact("//fwd/room/b"),
    Exact("plain"),
    Exact("//fwd/plain"),
    Prefix("//room/"),
    Prefix("//fwd/"),
    Prefix("plain/"),
    Everything(),
]


@dataclass(frozen=True)
class Plan:
    seed: int
    nodes: int
    edges: list[tuple[int, int]]
    clients: list[tuple[int, list[Pattern], bool]]
    """The broker, the subscription, and whether the client gets its own messages."""
    published: list[tuple[int, list[str]]]
    """The client that publishes, and the topics."""


@st.composite
def plans(draw: st.DrawFn, tree: bool = False) -> Plan:
    count = draw(st.integers(2, 5))
    edges = {(draw(st.integers(0, i - 1)), i) for i in range(1, count)}
    if not tree:
        pairs = [(i, j) for j in range(count) for i in range(j)]
        edges |= draw(st.sets(st.sampled_from(pairs), max_size=4))
    clients = draw(
        st.lists(
            st.tuples(
                st.integers(0, count - 1),
                st.lists(st.sampled_from(PATTERNS), max_size=3, unique=True),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        )
    )
    published = draw(
        st.lists(
            st.tuples(st.integers(0, len(clients) - 1), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)),
            min_size=1,
            max_size=4,
        )
    )
    return Plan(draw(st.integers(0, 2**32)), count, sorted(edges), clients, published)


class Run:
    """A plan carried out."""

    def __init__(self, plan: Plan, forward: bool = True) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.net = Net(plan.seed)
        self.nodes = [self.net.node(f"node{i}", forward) for i in range(plan.nodes)]
        self.clients: list[Client] = []
        self.messages: list[tuple[Client, Row]] = []
        joins = [("link", i) for i in range(len(plan.edges))] + [("client", i) for i in range(len(plan.clients))]
        self.random.shuffle(joins)
        made: dict[int, Client] = {}
        for kind, i in joins:
            if kind == "link":
                self._link(*plan.edges[i])
            else:
                made[i] = self._client(*plan.clients[i])
            self._some_steps()
        self.clients = [made[i] for i in range(len(plan.clients))]
        self.net.run_until_idle()

    def _link(self, one: int, two: int) -> None:
        ends = [self.nodes[one], self.nodes[two]]
        self.random.shuffle(ends)
        self.net.link(*ends)

    def _client(self, node: int, patterns: list[Pattern], echo: bool) -> Client:
        return self.nodes[node].client(*patterns, echo=echo)

    def _some_steps(self) -> None:
        for _ in range(self.random.randint(0, 6)):
            self.net.step()

    def publish_some(self) -> None:
        for who, names in self.plan.published:
            client = self.clients[who]
            rows = [(name, f"{len(self.messages) + i}".encode()) for i, name in enumerate(names)]
            self.messages += [(client, row) for row in rows]
            self.node_of(client).publish(client.subscriber, *rows)
            self._some_steps()
        self.net.run_until_idle()

    def node_of(self, client: Client) -> Node:
        return next(node for node in self.nodes if client in node.clients)

    def distance_is_at_most_one(self, one: Node, two: Node) -> bool:
        pair = sorted([self.nodes.index(one), self.nodes.index(two)])
        return one is two or (pair[0], pair[1]) in self.plan.edges


def forwarded(name: str) -> str:
    return "//fwd/" + name.removeprefix("//")


def receives_own(client: Client, publisher: Client) -> bool:
    return client is not publisher or client.subscriber.echo


def wants(client: Client, *names: str) -> bool:
    return any(pattern.matches(name) for pattern in client.subscriber.patterns for name in names)


@given(plans())
def test_a_mesh(plan: Plan) -> None:
    run = Run(plan)
    check_that_every_broker_subscribes_to_both_names(run)
    run.publish_some()
    check_that_every_subscriber_got_each_message_once(run)
    check_that_names_fit(run)
    check_that_links_carry_a_message_once(run)


def check_that_every_broker_subscribes_to_both_names(run: Run) -> None:
    for pair in run.net.links:
        for end in pair:
            for client in end.node.clients:
                for pattern in client.subscriber.patterns:
                    assert both_names(pattern.value) <= end.subscribed


def both_names(text: str) -> set[str]:
    if text.startswith("//fwd/"):
        return {text, "//" + text.removeprefix("//fwd/")}
    return {text, "//fwd/" + text.removeprefix("//")} if text.startswith("//") else {text}


def check_that_every_subscriber_got_each_message_once(run: Run) -> None:
    """And no other subscriber gets a message."""
    for client in run.clients:
        expected = [
            payload
            for publisher, (name, payload) in run.messages
            if wants(client, name, forwarded(name)) and receives_own(client, publisher)
        ]
        assert Counter(client.payloads) == Counter(expected)


def check_that_names_fit(run: Run) -> None:
    names = {payload: name for _, (name, payload) in run.messages}
    for client in run.clients:
        for topic, payload in client.got:
            assert wants(client, topic)
            assert topic in (names[payload], forwarded(names[payload]))


def check_that_links_carry_a_message_once(run: Run) -> None:
    """Once in each direction. The simulation checks that no message returns to its origin."""
    publishers = {payload: run.node_of(publisher) for publisher, (_, payload) in run.messages}
    for pair in run.net.links:
        for end in pair:
            assert len({payload for _, payload in end.sent}) == len(end.sent)
            for topic, payload in end.sent:
                assert topic.startswith("//fwd/") or end.node is publishers[payload]


@given(plans())
def test_without_forwarding_messages_travel_one_link(plan: Plan) -> None:
    run = Run(plan, forward=False)
    run.publish_some()
    for client in run.clients:
        expected = [
            payload
            for publisher, (name, payload) in run.messages
            if wants(client, name)
            and receives_own(client, publisher)
            and run.distance_is_at_most_one(run.node_of(client), run.node_of(publisher))
        ]
        assert Counter(client.payloads) == Counter(expected)


@given(plans())
def test_without_clients_only_forwarding_brokers_subscribe(plan: Plan) -> None:
    run = Run(plan)
    for client in run.clients:
        run.node_of(client).leave(client.subscriber)
        run._some_steps()
    run.net.run_until_idle()
    for node in run.nodes:
        for end in node.ends:
            texts = {text for text in end.subscribed if not text.startswith("polycast/node/")}
            assert texts == ({""} if len(node.ends) > 1 else set())


@given(plans(), st.data())
def test_the_rest_of_a_mesh_continues(plan: Plan, data: st.DataObject) -> None:
    """A link breaks; while other links connect all brokers, every subscriber gets every message."""
    run = Run(plan)
    spare = [pair for pair in run.net.links if connected(run, without=pair)]
    if spare:
        near, _ = data.draw(st.sampled_from(spare))
        near.node.close(near)
        run.net.run_until_idle()
    run.publish_some()
    check_that_every_subscriber_got_each_message_once(run)


def connected(run: Run, without: object) -> bool:
    edges = [(near.node, far.node) for near, far in run.net.links if (near, far) != without]
    reached = {run.nodes[0]}
    for _ in run.nodes:
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    return len(reached) == len(run.nodes)
