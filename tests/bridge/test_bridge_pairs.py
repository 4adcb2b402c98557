"""Every dialect to every dialect, over real sockets: what is arrived is what the rules say."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bridge.carry import carry
from bridge.dialect_cases import CASES
from kit.broker import Broker

each_source = pytest.mark.parametrize("source", CASES)

topics = st.one_of(
    st.sampled_from(
        ["plain", "a b", "a!b", "a|b", "a\r\nb", "é/ü", "foo.>", ">", "all", "%20", "//fwd/x", '"}', ""]
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
)
json_texts = st.sampled_from([b"null", b"true", b"[1,2.50,-0]", b'{"a":{"b":[]}}', b'"text"', b"1e5", b"12"])
payloads = st.one_of(
    st.just(b""),
    st.binary(max_size=40),
    st.text(st.characters(codec="utf-8"), max_size=20).map(str.encode),
    json_texts,
    st.sampled_from([b"two\nlines", b"ends in CR\r", b"a|b", b"|", b"\xff\xfe", b" ", b'{"publish":"x"}', b"{"]),
)


@each_source
@settings(suppress_health_check=list(HealthCheck))
@given(topic=topics, payload=payloads)
def test_every_dialect_receives_by_the_rules(crossroads: Broker, source: str, topic: str, payload: bytes) -> None:
    assume(not topic.startswith("polycast/") and CASES[source].encode(topic, payload) is not None)
    arrived, expected = carry(crossroads, source, topic, payload)
    assert arrived == expected
