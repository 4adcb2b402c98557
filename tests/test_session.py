"""Two dialects talk: the README's session."""

from kit.broker import Broker


def test_simplest_and_fanout_receive_from_each_other() -> None:
    with Broker(fresh=True) as broker, broker.connect("simplest") as one, broker.connect("fanout.client") as two:
        two.expect(b"debug!connected...\n")
        two.send(b"subscribe chat.>\ntime\n")
        two.read_until(b"\n")
        one.send(b"sub chat\npub chat.a 5 hello\n")
        two.expect(b"chat.a!hello\n")
        with broker.connect("fanout.controller") as controller:
            controller.send(b"chat.b hi there\n")
            two.expect(b"chat.b!hi there\n")
            one.expect(b"pub chat.b 8 hi there\n")
