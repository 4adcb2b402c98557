"""The rules of the mesh, one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.simulation import Client, End, Net, Node, Row
from polycast.broker.forwarded_cache import ForwardedCache
from polycast.broker.mesh import CloseLink, Effect, SubscribeAt, UnsubscribeAt, to_direct, to_forwarded, to_texts
from polycast.model import Burst, Contains, Everything, Exact, Format, Limits, Pattern, Prefix
from polycast.routing import Subscriber


def line(count: int, forward: bool = True, **memory: float) -> tuple[Net, list[Node]]:
    """Brokers in a row."""
    net = Net()
    seconds, messages = memory.get("seconds", 10.0), int(memory.get("messages", 1000))
    nodes = [net.node(f"node{i}", forward, seconds, messages) for i in range(count)]
    for one, two in pairwise(nodes):
        net.link(one, two)
    return net, nodes


def send(net: Net, node: Node, *rows: Row) -> None:
    publisher = node.client()
    node.publish(publisher.subscriber, *rows)
    net.run_until_idle()


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direct", "forwarded"),
    [
        (b"//x", b"//fwd/x"),
        (b"//x/y", b"//fwd/x/y"),
        (b"x", b"//fwd/x"),
        (b"/x", b"//fwd//x"),
        (b"///x", b"//fwd//x"),
        (b"//fwd/x", b"//fwd/x"),
        (b"//fwd/fwd/x", b"//fwd/fwd/x"),
        (b"//fwdx", b"//fwd/fwdx"),
    ],
)
def test_forwarded_names(direct: bytes, forwarded: bytes) -> None:
    assert to_forwarded(direct) == forwarded
    assert to_forwarded(forwarded) == forwarded


@pytest.mark.parametrize("direct", [b"//x", b"x", b"//x//y", b"a/b"])
def test_a_forwarded_name_leads_back(direct: bytes) -> None:
    assert direct in to_direct(to_forwarded(direct))


@pytest.mark.parametrize(
    ("pattern", "forwarding", "plain"),
    [
        (Contains("//x"), ("//x", "//fwd/x"), ("//x",)),
        (Contains("//fwd/x"), ("//x", "//fwd/x"), ("//fwd/x",)),
        (Contains("x"), ("x",), ("x",)),
        (Exact("//x"), ("//x", "//fwd/x"), ("//x",)),
        (Prefix("//x/"), ("//x/", "//fwd/x/"), ("//x/",)),
        (Everything(), ("",), ("",)),
        (Contains("polycast/events"), (), ()),
        (Exact("a\nb"), (), ()),
        (Exact("a\r"), (), ()),
    ],
)
def test_the_substrings_of_a_pattern(
    pattern: Pattern, forwarding: tuple[str, ...], plain: tuple[str, ...]
) -> None:
    assert to_texts(pattern, forward=True) == forwarding
    assert to_texts(pattern, forward=False) == plain


# -- subscriptions at links ------------------------------------------------------------------------------


def subscribed(end: End) -> set[str]:
    return {text for text in end.subscribed if not text.startswith("polycast/node/")}


def test_a_client_of_either_name_subscribes_to_both() -> None:
    for text in ("//x", "//fwd/x"):
        net, [one, two] = line(2)
        one.client(Contains(text))
        net.run_until_idle()
        assert subscribed(one.ends[0]) == {"//x", "//fwd/x"}
        assert subscribed(two.ends[0]) == set()


def test_two_clients_share_one_subscription_at_a_link() -> None:
    _, [one, _] = line(2)
    first, second = one.client(), one.client()
    link = one.ends[0].subscriber
    assert set(one.mesh.subscribed(first.subscriber, Contains("//x"))) == {
        SubscribeAt(link, "//x"),
        SubscribeAt(link, "//fwd/x"),
    }
    assert one.mesh.subscribed(second.subscriber, Contains("//fwd/x")) == []
    assert one.mesh.unsubscribed(first.subscriber, Contains("//x")) == []
    gone = one.mesh.unsubscribed(second.subscriber, Contains("//fwd/x"))
    assert set(gone) == {UnsubscribeAt(link, "//x"), UnsubscribeAt(link, "//fwd/x")}


def test_a_new_link_gets_existing_subscriptions() -> None:
    net = Net()
    one, two = net.node("one"), net.node("two")
    one.client(Contains("//x"))
    one.mesh.add_interest([Contains("//peers/org/")])
    net.link(one, two)
    net.run_until_idle()
    assert subscribed(one.ends[0]) == {"//x", "//fwd/x", "//peers/org/", "//fwd/peers/org/"}


def test_a_forwarding_broker_subscribes_to_everything() -> None:
    for forward in (True, False):
        net, [one, two, three] = line(3, forward)
        three.client(Contains("x"))
        net.run_until_idle()
        assert subscribed(three.ends[0]) == {"x"}
        assert [subscribed(end) for end in two.ends] == [{""} if forward else set()] * 2
        assert subscribed(one.ends[0]) == set()


def test_a_broker_with_one_link_left_unsubscribes_from_everything() -> None:
    net, [_, two, three] = line(3)
    three.client(Contains("x"))
    net.run_until_idle()
    towards_one, towards_three = two.ends
    two.close(towards_three)
    net.run_until_idle()
    assert subscribed(towards_one) == set()
    assert three.ends == []


def test_without_links_there_are_no_effects() -> None:
    net, [one, two] = line(2)
    assert one.mesh.active
    one.close(one.ends[0])
    net.run_until_idle()
    assert not one.mesh.active
    assert not two.mesh.active
    assert one.mesh.subscribed(one.client().subscriber, Contains("x")) == []


def test_reserved_topics_are_not_subscribed_at_links() -> None:
    net, [one, _] = line(2)
    one.client(Prefix("polycast/"), Contains("polycast/events"))
    net.run_until_idle()
    assert subscribed(one.ends[0]) == set()


# -- deliveries ------------------------------------------------------------------------------------------


def test_a_link_with_both_names_gets_the_direct_one() -> None:
    net, [one, two] = line(2)
    near = two.client(Contains("//x"), Contains("//fwd/x"))
    net.run_until_idle()
    send(net, one, ("//x", b"1"))
    assert one.ends[0].sent == [("//x", b"1")]
    assert near.got == [("//x", b"1")]


def test_names_along_a_line() -> None:
    net, nodes = line(3)
    both = [node.client(Contains("//x"), Contains("//fwd/x")) for node in nodes]
    direct = [node.client(Contains("//x")) for node in nodes]
    forwarded = [node.client(Contains("//fwd/x")) for node in nodes]
    net.run_until_idle()
    send(net, nodes[0], ("//x", b"1"))
    assert [client.got for client in both] == [[("//x", b"1")], [("//x", b"1")], [("//fwd/x", b"1")]]
    assert [client.got for client in direct] == [[("//x", b"1")]] * 3
    assert [client.got for client in forwarded] == [[("//fwd/x", b"1")]] * 3


def test_a_plain_name_comes_back_to_itself() -> None:
    net, nodes = line(4)
    far = nodes[3].client(Exact("plain"))
    net.run_until_idle()
    send(net, nodes[0], ("plain", b"1"))
    assert nodes[1].ends[1].sent == nodes[2].ends[1].sent == [("//fwd/plain", b"1")]
    assert far.got == [("plain", b"1")]


def test_a_forwarded_name_is_never_doubled() -> None:
    net, nodes = line(4)
    far = nodes[3].client(Contains("x"))
    net.run_until_idle()
    send(net, nodes[0], ("//fwd/x", b"1"))
    assert [end.sent for node in nodes[:3] for end in node.ends[-1:]] == [[("//fwd/x", b"1")]] * 3
    assert far.got == [("//fwd/x", b"1")]


def test_order_holds_along_a_line() -> None:
    net, nodes = line(3)
    far = nodes[2].client(Contains("x"), Contains("y"))
    net.run_until_idle()
    rows = [(name, str(i).encode()) for i, name in enumerate(["//x", "//y", "y", "//x", "//x", "x"])]
    send(net, nodes[0], *rows)
    assert far.payloads == [payload for _, payload in rows]


def test_with_forwarding_sequences_rise_too() -> None:
    net, [one, _] = line(2)
    one.client(Contains("//x"))
    net.run_until_idle()
    publisher = one.client().subscriber
    found = []
    for payloads in ([b"1", b"2"], [b"3"]):
        burst = Burst.of("some", [(b"//x", payload, Format.BYTES) for payload in payloads])
        [delivery] = one.spread(burst, publisher).deliveries
        found.append(delivery.burst.sequences)
    assert found == [[0], [2]]


def test_topics_that_are_not_utf8_are_refused_here_too() -> None:
    net, [one, two] = line(2)
    near = two.client(Everything())
    net.run_until_idle()
    rows = [(b"a", b"1"), (b"\xff", b"2"), (b"b", b"3")]
    burst = Burst.of("some", [(topic, payload, Format.BYTES) for topic, payload in rows])
    publication = one.spread(burst, one.client().subscriber)
    net.run_until_idle()
    assert (publication.accepted, publication.refused) == (2, 1)
    assert near.payloads == [b"1", b"3"]


def test_a_publisher_with_echo_and_one_without() -> None:
    net, [one, _] = line(2)
    loud, shy = one.client(Contains("//x")), one.client(Contains("//fwd/x"), echo=False)
    net.run_until_idle()
    one.publish(loud.subscriber, ("//x", b"1"))
    one.publish(shy.subscriber, ("//x", b"2"))
    assert (loud.payloads, shy.payloads) == ([b"1", b"2"], [b"1"])


# -- identical messages ----------------------------------------------------------------------------------


def three_listeners(nodes: list[Node]) -> list[Client]:
    return [node.client(Contains("//x")) for node in nodes]


def test_identical_messages_are_suppressed_on_forwarded_names_only() -> None:
    net, nodes = line(3)
    here, near, far = three_listeners(nodes)
    net.run_until_idle()
    for _ in range(3):
        send(net, nodes[0], ("//x", b"same"))
    assert (len(here.got), len(near.got), len(far.got)) == (3, 3, 1)
    assert nodes[1].ends[1].sent == [("//fwd/x", b"same")]


def test_identical_messages_in_one_burst() -> None:
    net, nodes = line(3)
    here, near, far = three_listeners(nodes)
    net.run_until_idle()
    send(net, nodes[0], ("//x", b"same"), ("//x", b"other"), ("//x", b"same"))
    assert here.payloads == near.payloads == [b"same", b"other", b"same"]
    assert far.payloads == [b"same", b"other"]


def test_the_same_data_under_another_name_is_another_message() -> None:
    net, nodes = line(3)
    far = nodes[2].client(Everything())
    net.run_until_idle()
    send(net, nodes[0], ("//x", b"same"), ("//y", b"same"), ("z", b"same"))
    assert len(far.got) == 3


def test_identical_messages_expire() -> None:
    net, nodes = line(3, seconds=10.0)
    far = nodes[2].client(Contains("//x"))
    net.run_until_idle()
    for seconds in (0.0, 9.9, 0.2):
        net.pass_time(seconds)
        send(net, nodes[0], ("//x", b"same"))
    assert far.got == [("//x", b"same")] * 2


def test_copies_that_are_suppressed_are_counted() -> None:
    net = Net()
    nodes = [net.node(f"node{i}") for i in range(3)]
    for one, two in ((0, 1), (1, 2), (0, 2)):
        net.link(nodes[one], nodes[two])
    listeners = three_listeners(nodes)
    net.run_until_idle()
    send(net, nodes[0], ("//x", b"1"))
    assert [len(client.got) for client in listeners] == [1, 1, 1]
    copies = sum(len(end.arrived) for node in nodes for end in node.ends) - 2
    assert sum(node.mesh.suppressed for node in nodes) == copies > 0


def test_a_direct_message_behind_its_forwarded_copy() -> None:
    """Already delivered; the next identical message is another one."""
    _, [one, _] = line(2)
    link = one.ends[0].subscriber
    here = one.client(Contains("//x"))
    for name in ("//fwd/x", "//x", "//x"):
        one.publish(link, (name, b"same"))
    assert here.got == [("//x", b"same")] * 2


def test_a_direct_message_long_behind_a_forwarded_copy_is_another_message() -> None:
    net, [one, _] = line(2)
    link = one.ends[0].subscriber
    here = one.client(Contains("//x"))
    one.publish(link, ("//fwd/x", b"same"))
    net.pass_time(2.0)
    one.publish(link, ("//x", b"same"))
    assert len(here.got) == 2


def test_cache_is_bounded() -> None:
    memory = ForwardedCache(seconds=10.0, messages=3)
    for i in range(10):
        memory.add((b"//fwd/x", bytes([i])), now=float(i) / 10, awaits_direct=False)
        assert len(memory) <= 3
    assert [memory.seen((b"//fwd/x", bytes([i])), 1.0) for i in (6, 7, 8, 9)] == [False, True, True, True]


def test_the_cache_evicts_the_oldest_in_constant_time_and_counts_early_evictions() -> None:
    """A cost that grows with evicted entries would make this test very slow."""
    memory, messages = ForwardedCache(seconds=10.0, messages=65_536), 300_000
    for i in range(messages):
        memory.add((b"//fwd/x", i.to_bytes(20, "big")), now=1.0 + i * 1e-6, awaits_direct=False)
    known = [memory.seen((b"//fwd/x", i.to_bytes(20, "big")), 2.0) for i in range(messages)]
    assert known == [False] * (messages - 65_536) + [True] * 65_536
    assert memory.forgotten == messages - 65_536


def test_expired_entries_are_not_early_evictions() -> None:
    memory = ForwardedCache(seconds=10.0, messages=3)
    for i in range(10):
        memory.add((b"//fwd/x", bytes([i])), now=float(i) * 5, awaits_direct=False)
    assert memory.forgotten == 0


def test_the_cache_drops_expired_entries() -> None:
    memory = ForwardedCache(seconds=10.0, messages=1000)
    for i in range(100):
        memory.add((b"//fwd/x", bytes([i])), now=float(i), awaits_direct=False)
    assert len(memory) == 10
    assert not memory.seen((b"//fwd/x", bytes([89])), 99.0)
    assert memory.seen((b"//fwd/x", bytes([90])), 99.0)


def test_the_cache_of_a_node_is_bounded() -> None:
    net, [one, _] = line(2, messages=5)
    send(net, one, *[("//x", str(i).encode()) for i in range(50)])
    assert len(one.mesh._cache) == 5


# -- one link for two brokers ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("dials", ["ab ba", "ab ab", "ba ba", "ab ba ab"])
def test_of_several_links_between_two_brokers_one_stays(dials: str, seed: int) -> None:
    net = Net(seed)
    nodes = {name: net.node(name) for name in "ab"}
    here, there = nodes["a"].client(Everything()), nodes["b"].client(Everything())
    for dial in dials.split():
        net.link(nodes[dial[0]], nodes[dial[1]])
    net.run_until_idle()
    assert len(net.open_links()) == 1
    assert [len(node.ends) for node in nodes.values()] == [1, 1]
    send(net, nodes["a"], ("//x", b"1"))
    assert here.payloads == there.payloads == [b"1"]


@pytest.mark.parametrize("seed", range(10))
def test_a_later_link_is_noticed_as_well(seed: int) -> None:
    net = Net(seed)
    one, two = net.node("a"), net.node("b")
    net.link(one, two)
    net.run_until_idle()
    net.link(two, one)
    net.run_until_idle()
    assert len(net.open_links()) == 1


def test_links_between_different_brokers_stay() -> None:
    net, nodes = line(4)
    net.link(nodes[3], nodes[0])
    net.run_until_idle()
    assert len(net.open_links()) == 4
    assert not any(node.unlinked for node in nodes)


@pytest.mark.parametrize("seed", range(5))
def test_a_link_to_itself_is_closed_by_the_end_that_dialed(seed: int) -> None:
    """Only the dialling end can stop dialling."""
    net = Net(seed)
    one = net.node("a")
    near, far = net.link(one, one)
    net.run_until_idle()
    assert one.unlinked == [CloseLink(near.subscriber, duplicate=None)]
    assert not near.open
    assert not far.open


def two_strangers() -> tuple[Node, Subscriber, Subscriber]:
    """A node with one link in each direction, to brokers that sent no id."""
    node = Node("node")
    dialed, accepted = (node.hub.join(name, echo=False, link=True) for name in ("dialed", "accepted"))
    node.mesh.join(dialed, dialed=True)
    node.mesh.join(accepted, dialed=False)
    return node, dialed, accepted


def test_links_without_an_id_stay() -> None:
    node, dialed, accepted = two_strangers()
    assert node.mesh.subscribed(dialed, Contains("//x")) == []
    assert node.mesh.subscribed(accepted, Contains("//x")) == []


def test_an_empty_id_closes_no_link() -> None:
    node, _, accepted = two_strangers()
    effects = node.mesh.subscribed(accepted, Contains("polycast/node/"))
    assert not [effect for effect in effects if isinstance(effect, CloseLink)]


# -- an id is a claim ------------------------------------------------------------------------------------


def claimed(node: Node, link: Subscriber, claim: str) -> list[Effect]:
    return node.mesh.subscribed(link, Contains(f"polycast/node/{claim}"))


@pytest.mark.parametrize("claim", ["a", "z"], ids=["smaller", "larger"])
@pytest.mark.parametrize("dialed", [True, False], ids=["dialed", "accepted"])
@pytest.mark.parametrize("trust", [0, 1])
def test_a_link_is_not_closed_for_another_identity(claim: str, dialed: bool, trust: int) -> None:
    """Its subscriptions stay, whichever link sends its id first."""
    for honest_first in (True, False):
        node = Node("node")
        node.client(Contains("//x"))
        honest, other = (node.hub.join(name, echo=False, link=True) for name in ("honest", "other"))
        node.mesh.join(honest, dialed=True, identity="friend", trust=trust)
        node.mesh.join(other, dialed=dialed, identity="guest", trust=0)
        effects = claimed(node, honest if honest_first else other, claim)
        effects += claimed(node, other if honest_first else honest, claim)
        assert not [effect for effect in effects if isinstance(effect, CloseLink)]
        assert not [effect for effect in effects if isinstance(effect, UnsubscribeAt) and effect.link is honest]


@pytest.mark.parametrize("claim", ["a", "z"], ids=["smaller", "larger"])
@pytest.mark.parametrize("configured_first", [True, False])
def test_an_announced_link_does_not_close_a_configured_one(claim: str, configured_first: bool) -> None:
    node = Node("node")
    configured, announced = (node.hub.join(name, echo=False, link=True) for name in ("configured", "announced"))
    node.mesh.join(configured, dialed=True, identity="mesh", trust=2)
    node.mesh.join(announced, dialed=True, identity="mesh", trust=0)
    effects = claimed(node, configured if configured_first else announced, claim)
    effects += claimed(node, announced if configured_first else configured, claim)
    assert [effect for effect in effects if isinstance(effect, CloseLink)] == [CloseLink(announced, configured)]


def test_the_preferred_link_changes_with_the_rights_of_the_links() -> None:
    node = Node("node")
    node.client(Contains("//x"))
    one, two = (node.hub.join(name, echo=False, link=True) for name in ("one", "two"))
    node.mesh.join(one, dialed=False, identity="one", trust=1)
    node.mesh.join(two, dialed=False, identity="two", trust=0)
    claimed(node, one, "a")
    assert UnsubscribeAt(two, "//x") in claimed(node, two, "a")
    assert SubscribeAt(two, "//x") in node.mesh.set_trust(one, 0)
    assert UnsubscribeAt(one, "//x") in node.mesh.set_trust(two, 1)


def test_the_first_id_of_a_link_counts() -> None:
    node, dialed, accepted = two_strangers()
    claimed(node, dialed, "a")
    claimed(node, accepted, "b")
    assert claimed(node, accepted, "a") == []


NAMES = [("", "far", "", "far"), ("one", "two", "one", "two"), ("", "", "", "far"), ("", "far", "", "")]
"""What a calls its links to b, the one that it dialed and the other; and what b calls its links to a."""


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("names", NAMES)
def test_two_links_under_different_identities_bring_everything_once(
    names: tuple[str, str, str, str], forward: bool, seed: int
) -> None:
    net = Net(seed)
    a, b = net.node("a", forward), net.node("b", forward)
    here, there = a.client(Everything()), b.client(Everything())
    ours = net.link(a, b, near_as=names[0], far_as=names[3])
    net.link(b, a, near_as=names[2], far_as=names[1])
    net.run_until_idle()
    send(net, a, ("//x", b"1"))
    send(net, b, ("//x", b"2"))
    assert sorted(here.payloads) == sorted(there.payloads) == [b"1", b"2"]
    for end in ours:
        end.node.close(end)
    net.run_until_idle()
    if not net.open_links():
        net.link(a, b)
        net.run_until_idle()
    send(net, a, ("//x", b"3"))
    send(net, b, ("//x", b"4"))
    assert sorted(here.payloads) == sorted(there.payloads) == [b"1", b"2", b"3", b"4"]


# -- where meshes meet other rules -----------------------------------------------------------------------


def test_reserved_topics_stay_reserved() -> None:
    net, nodes = line(2)
    curious = [node.client(Everything(), Contains("events")) for node in nodes]
    net.run_until_idle()
    send(net, nodes[0], ("polycast/events/open", b"1"))
    assert [client.got for client in curious] == [[], []]


def test_a_forwarded_name_does_not_become_a_reserved_one() -> None:
    _, [one, _] = line(2)
    insider = one.client(Prefix("polycast/"))
    one.publish(one.ends[0].subscriber, ("//fwd/polycast/events/open", b"1"))
    assert insider.got == []


def test_a_subscription_to_the_forwarded_name_holds_without_links() -> None:
    net = Net()
    alone = net.node("alone")
    client = alone.client(Contains("//fwd/x"))
    send(net, alone, ("//x", b"1"))
    assert client.got == [("//fwd/x", b"1")]


def test_a_long_topic_does_not_cost_the_link() -> None:
    net, nodes = line(3)
    far = nodes[2].client(Everything())
    net.run_until_idle()
    send(net, nodes[0], ("//" + "x" * (Limits().topic_bytes - 2), b"1"))
    send(net, nodes[0], ("//y", b"2"))
    assert len(net.open_links()) == 2
    assert far.payloads[-1:] == [b"2"]


def test_a_topic_that_needs_escapes_does_not_cost_the_link() -> None:
    net, nodes = line(2)
    near = nodes[1].client(Everything())
    net.run_until_idle()
    send(net, nodes[0], ("\r" * Limits().topic_bytes, b"1"))
    send(net, nodes[0], ("//y", b"2"))
    assert len(net.open_links()) == 1
    assert near.payloads[-1:] == [b"2"]
