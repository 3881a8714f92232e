"""Alerts of a query on Spark: answers of each micro-batch that are posted, or written to a topic, beside the sink."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from appulse.engines.alerts import NO_FILE, DeadLetters, Failure, Webhook, check_only, from_environment
from appulse.engines.spark.failures import spark_errors
from appulse.engines.spark.inputs import quoted
from appulse.engines.spark.messages import MESSAGE_ID, check_columns, encoded
from appulse.errors import BadArgument, likely

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

__all__ = ["Alert", "alerts_of"]

Alert = Callable[["DataFrame", int], None]

_LOG = logging.getLogger("appulse")
_KINDS = ("webhook", "kafka")
_LONGEST_WAIT = 30.0


def alerts_of(given: Sequence[Any], query: str, *, checkpoint: str, answers: T.StructType) -> list[Alert]:
    """What sends the alerts that a user asked for; raises `BadArgument`."""
    own = None if "://" in checkpoint else f"{checkpoint.rstrip('/')}.dead.jsonl"
    return [_alert(one, query, own, answers) for one in given]


def _alert(given: Any, query: str, dead_letter: str | None, answers: T.StructType) -> Alert:
    if callable(given):
        return cast("Alert", given)
    if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], Mapping)):
        raise BadArgument(f"alerts= has {given!r}: give pairs such as ('webhook', {{'url': 'https://host/hook'}}).")
    kind, options = str(given[0]).lower(), dict(given[1])
    if kind not in _KINDS:
        raise BadArgument(f"alerts= has the kind {given[0]!r}.{likely(kind, _KINDS)} Known: {', '.join(_KINDS)}.")
    if kind == "kafka" and options.get("key") is not None:
        check_columns("alerts=('kafka', {'key': ...})", [options["key"]], answers.names)
    only = check_only(options.pop("only", {}), answers.names)
    send = _to_webhook(options, dead_letter, query) if kind == "webhook" else _to_topic(options, dead_letter, query)

    def alert(frame: DataFrame, number: int) -> None:
        for name, values in only.items():
            frame = frame.where(quoted(name).isin(list(values)))
        send(frame, number)

    return alert


def _to_webhook(options: dict[str, Any], dead_letter: str | None, query: str) -> Alert:
    hook = Webhook.of(options, dead_letter)

    def send(frame: DataFrame, number: int) -> None:
        rows = encoded(frame, query, number, None).toLocalIterator()
        hook.send((row["key"], row["value"]) for row in rows)

    return send


def _to_topic(options: dict[str, Any], dead_letter: str | None, query: str) -> Alert:
    """Kafka's own client tries again for a while; after that so do we, and then the events are dead letters."""
    key, attempts, wait = options.pop("key", None), options.pop("attempts", 4), options.pop("wait", 0.5)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise BadArgument(f"attempts={attempts!r}: give a whole number above 0.")
    file = options.pop("dead_letter", dead_letter)
    if file is None:
        raise BadArgument(NO_FILE)
    letters = DeadLetters(file)
    options = {name: from_environment(v, name) if isinstance(v, Mapping) else v for name, v in options.items()}

    def send(frame: DataFrame, number: int) -> None:
        messages = encoded(frame, query, number, key)
        error = ""
        for attempt in range(attempts):
            try:
                return messages.write.format("kafka").options(**options).mode("append").save()
            except spark_errors() as problem:
                error = str(problem).strip().splitlines()[0]
                if attempt + 1 < attempts:
                    time.sleep(random.uniform(0, min(_LONGEST_WAIT, wait * 2**attempt)))  # noqa: S311 - no secret
        bodies = [str(row["value"]) for row in messages.toLocalIterator()]
        why = Failure(attempts, error)
        letters.add(((json.loads(body)[MESSAGE_ID], body, why) for body in bodies), f"topic {options.get('topic')}")
        _LOG.warning("%d events were not taken by topic %s: %s", len(bodies), options.get("topic"), error)
        return None

    return send
