"""Topics that a query writes to are apart from each other and from those that it reads."""

from __future__ import annotations

import pytest

from appulse.model.topics import Topics, topic_clashes

VANS = Topics.of("one:9092, TWO:9092", ["vans", "cabs"])


@pytest.mark.parametrize(
    ("options", "both"),
    [
        ({"kafka.bootstrap.servers": "two:9092", "topic": "cabs"}, "cabs"),
        ({"Kafka.Bootstrap.Servers": "three:9092,One:9092", "Topic": "vans"}, "vans"),
        ({"kafka.bootstrap.servers": "three:9092", "topic": "vans"}, None),
        ({"kafka.bootstrap.servers": "one:9092", "topic": "pairs"}, None),
        ({"kafka.bootstrap.servers": {"env": "SERVERS"}, "topic": "vans"}, None),
        ({"kafka.bootstrap.servers": "one:9092"}, None),
    ],
)
def test_a_topic_is_known_by_a_broker_and_its_name(options: dict[str, object], both: str | None) -> None:
    sink = Topics.of_options(options)
    assert (None if sink is None else sink.shared(VANS)) == both


@pytest.mark.parametrize(
    ("name", "value", "reads"),
    [
        ("subscribe", "cabs, vans", True),
        ("subscribePattern", "v.*", True),
        ("subscribePattern", "van", False),
        ("subscribePattern", "v(", False),
        ("assign", '{"vans": [0, 1]}', True),
        ("assign", '{"cabs": [0]}', False),
        ("assign", "vans", False),
        ("assign", "7", False),
        ("assign", "null", False),
    ],
)
def test_what_is_read_is_named_in_each_way_that_spark_has(name: str, value: str, reads: bool) -> None:
    read = Topics.of_options({"kafka.bootstrap.servers": "one:9092", name: value})
    sink = Topics.of("one:9092", ["vans"])
    found = topic_clashes({"sink": sink}, {}, [] if read is None else [read])
    assert [one.name for one in found] == ["sink"] * reads


def test_alerts_share_topics_with_each_other_only() -> None:
    one, other = Topics.of("one:9092", ["a"]), Topics.of("one:9092", ["b"])
    assert topic_clashes({"sink": one}, {"alerts.0": other, "alerts.1": other}, [VANS]) == []
    found = topic_clashes({"sink": one, "rejects": one}, {"alerts.0": one}, [VANS])
    assert [clash.name for clash in found] == ["rejects", "alerts.0", "alerts.0"]
    assert "'a' is the topic of sink, too" in found[0].problem
