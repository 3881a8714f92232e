"""How a call is carried out, and what a reader of its answers should know, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from appulse.engines.aggregates.call import AggregateCall
from appulse.engines.fences.call import FenceCall
from appulse.engines.join.assign import AssignCall
from appulse.engines.join.call import JoinCall
from appulse.engines.multi_queries.call import WindowCall
from appulse.engines.queries.call import QueryCall
from appulse.engines.sensors.call import SensorCall
from appulse.engines.sensors.phenomena import PhenomenaCall
from appulse.engines.thresholds import TOLERANCE
from appulse.model.uncertainty import Form, Gaussian, Position
from appulse.windows.definitions import CountWindow, TimeWindow
from appulse.windows.frames import described

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.engines.base import Call
    from appulse.engines.join.call import Observed
    from appulse.engines.objects import ObjectsCall
    from appulse.model.encoding import Encoding
    from appulse.model.readings import ReadingsEncoding
    from appulse.model.uncertainty import Model
    from appulse.operators.plan import JoinPlan

_FORMS = {
    Form.POINT: "exact points",
    Form.SAMPLES: "weighted samples",
    Form.GAUSSIAN: "Gaussians",
    Form.BALL: "uniform balls",
}
_BY_COST = (
    "by cost, push by push: a scan of small windows, a grid of large ones; samples on a line by columns, or as sorted "
    "runs (Sort-Match), where that costs less than judging pairs"
)
_TREES = "index: a tree of the right rows of each group, in which each left row looks for its nearest"
_DEPENDENT = (
    "Stream {name!r} is the output of a join: answers that share a row are not independent of each other, and what "
    "follows takes them to be. It is exact only where no two answers that meet here share a row; means of sums and "
    "counts are exact all the same."
)
_STREAM, _WARNING = "stream '", "warning"
_TOTALS = ("candidates", "answers", "audited", "false_dismissals")
_QUERIES = (
    "index: conditions as boxes in trees of 16 lanes; what boxes cannot say, such as comparisons of columns, is asked "
    "of the rows that lie in them"
)
_LANES = "join: on the equalities between streams that a query's answers all satisfy, by search; the index after that"


@dataclass(frozen=True)
class Explanation:
    """How a call is carried out. ``str()`` has it as lines of text.

    ``call`` is the name of the function. ``streams`` has a line per stream, ``steps`` a line per topic, such as
    ``"window"``, ``"probability"`` and ``"index"``. ``counts`` has the counts of a join in process, ``warnings`` what
    you should know about the results.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5]})
    >>> pairs = ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), epsilon=1, probability=1, window=10)
    >>> explanation = ap.explain(pairs)
    >>> explanation.call, explanation.warnings
    ('self_join', ())
    """

    call: str
    streams: dict[str, str]
    steps: dict[str, str]
    counts: dict[str, int]
    warnings: tuple[str, ...]

    @staticmethod
    def of(call: Call[Any], tiles: int | None) -> Explanation:
        """What is known of a call; ``tiles`` are those of Spark."""
        parts = [line.partition(": ")[::2] for line in explained(call, tiles)]
        streams = {topic[8:-1]: text for topic, text in parts if topic.startswith(_STREAM)}
        steps = {topic: text for topic, text in parts if not topic.startswith(_STREAM) and topic != _WARNING}
        observed = call.observed if isinstance(call, JoinCall) else None
        warnings = tuple(text for topic, text in parts if topic == _WARNING)
        return Explanation(call.meaning()["call"], streams, steps, dict(observed.counts) if observed else {}, warnings)

    def __str__(self) -> str:
        return "\n".join(f"{topic}: {text}" for topic, text in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(topic)}</th><td>{escape(text)}</td></tr>" for topic, text in self._lines())
        return f"<table><caption>{escape(self.call)}</caption>{rows}</table>"

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from ((f"{_STREAM}{name}'", text) for name, text in self.streams.items())
        yield from self.steps.items()
        yield from ((_WARNING, text) for text in self.warnings)


def explained(call: Call[Any], tiles: int | None) -> list[str]:
    """Lines about the streams, the operator, its window and its index; warnings last. ``tiles``: those of Spark."""
    if isinstance(call, SensorCall):
        return list(_sensors(call, tiles))
    if isinstance(call, PhenomenaCall):
        return list(_phenomena(call, tiles))
    if not isinstance(call, JoinCall | AggregateCall | QueryCall | WindowCall):
        return list(_meant(call))
    lines = [_stream(call, i) for i in range(len(call.encodings))]
    reports = [(one.name, getattr(one.fill, "report", "")) for one in call.encodings]
    lines += [f"imputer of {name!r}: {report}" for name, report in reports if report]
    if isinstance(call, AssignCall):
        lines += _assign(call, tiles)
    elif isinstance(call, JoinCall):
        lines += _join(call, tiles)
    elif isinstance(call, AggregateCall):
        asked = ", ".join(f"{a.aggregate} of {a.column}" for a in call.plan.asked)
        lines.append(f"aggregate: {asked}; {described(call.plan.rule, (call.plan.length,))}")
        if tiles is not None:
            lines.append(f"on Spark: {_spread(grouped=call.grouped)} {tiles}")
    elif isinstance(call, QueryCall):
        least = call.threshold
        lines.append(
            "queries: " + ("rows are certain" if least is None else f"reported from {least + TOLERANCE:.6g} on")
        )
        lines.append(_QUERIES)
        if tiles is not None:
            lines.append("on Spark: every worker process holds all queries; rows stay where they are")
    elif isinstance(call, WindowCall):
        lines += _over_windows(call, tiles)
    return lines + [f"warning: {_DEPENDENT.format(name=name)}" for name in call.dependent]


def _meant(call: Call[Any]) -> Iterator[str]:
    """What a call asks, setting by setting."""
    meaning = call.meaning()
    streams = meaning.get("streams", [meaning["stream"]] if "stream" in meaning else [])
    for stream in streams:
        parts = {name: part for name, part in stream.items() if name != "name"}
        yield f"stream {stream['name']!r}: " + ", ".join(f"{name} {_worded(part)}" for name, part in parts.items())
    if isinstance(call, FenceCall):
        yield f"fences: {len(call.fences.get().names):,} given"
    for name, part in meaning.items():
        if name not in ("call", "version", "streams", "stream", "types", "fences"):
            yield f"{name}: {_worded(part)}"


def _worded(part: Any) -> str:
    if isinstance(part, dict):
        settings = ", ".join(f"{name}={_worded(one)}" for name, one in part.items() if name not in ("kind", "columns"))
        inside = ", ".join(filter(None, [*part.get("columns", ()), settings]))
        return f"{part.get('kind', '')}({inside})"
    return ", ".join(map(_worded, part)) if isinstance(part, list) else str(part)


def _over_windows(call: WindowCall, tiles: int | None) -> Iterator[str]:
    window = ""
    if isinstance(call.window, TimeWindow):
        window = ", else " + described(None, call.window.micros(tuple(one.name for one in call.encodings)))
    elif isinstance(call.window, CountWindow):
        window = f", else the newest {call.window.size} rows"
    reported = "" if call.threshold is None else f", reported from {call.threshold + TOLERANCE:.6g} on"
    yield f"queries over {len(call.streams)} streams{reported}; window: each query's own{window}"
    if call.aggregates:
        yield "aggregate: " + ", ".join(" of ".join(filter(None, (a.aggregate, a.column))) for a in call.aggregates)
    yield _QUERIES
    yield _LANES
    if tiles is not None:
        yield f"on Spark: {_spread(grouped=call.grouped)} {tiles}"


def _phenomena(call: PhenomenaCall, tiles: int | None) -> Iterator[str]:
    encoding, plan = call.encoding, call.plan
    what = f"{encoding.value!r} in bins of {plan.width:.6g}" if plan.binned else f"{encoding.value!r}"
    by = "" if plan.by is None else f" by {plan.by.kind} over {plan.by.over / 1e6:.6g} seconds"
    yield f"readings: sensor {encoding.sensor!r}, values {what}{by}{_where(encoding)}"
    span, near = f"within {plan.span / 1e6:.6g} seconds", f"at most {plan.within or 0.0:.6g} apart"
    if plan.within is None:
        yield (
            f"active: sensors that held a value {plan.strength} times {span}; "
            f"a phenomenon: {plan.least} of them or more, connected"
        )
    else:
        yield (
            f"strong: readings with {plan.strength} of their sensor {span}, {near}; a phenomenon: those of sensors "
            f"that are neighbours, {near}, connected, of {plan.least} sensors or more"
        )
    if plan.silence is not None:
        yield f"silence: regions of a group end {plan.silence / 1e6:.6g} seconds after its last reading"
    if plan.sites is None:
        yield "neighbours: all sensors, for there are no locations"
    else:
        yield f"neighbours: {len(plan.sites.near) // 2} pairs of {len(plan.sites.sensors)} sensors"
    if tiles is not None:
        yield f"on Spark: {_spread(grouped=call.grouped)} {tiles}"


def _sensors(call: SensorCall, tiles: int | None) -> Iterator[str]:
    encoding, plan = call.encoding, call.plan
    like = "equal"
    if plan.reach is not None:
        like = f"at most {plan.reach:.6g} apart (tolerance included), in bins of {plan.width:.6g}"
    elif encoding.width is not None:
        like = f"in one bin of {encoding.width:.6g}"
    own = "; windows of their own" if plan.own else ""
    values = f"values {encoding.value!r} {like}{_where(encoding)}"
    yield f"readings: sensor {encoding.sensor!r}, {values}; {plan.span / 1e6:.6g} seconds{own}"
    yield "index: one hash structure of all sensors: values, the occurrences of each newest first"
    if tiles is not None:
        yield f"on Spark: values spread over {tiles} buckets by hash"


def _where(encoding: Encoding | ReadingsEncoding) -> str:
    return f", where {' and '.join(condition.text for condition in encoding.where)}" if encoding.where else ""


def _spread(*, grouped: bool) -> str:
    return "groups spread over" if grouped else "one bucket on one core, of"


def _stream(call: ObjectsCall | WindowCall, i: int) -> str:
    encoding = call.encodings[i]
    existence = f", existing with probability {encoding.existence!r}" if encoding.existence else ""
    late = f", at most {call.lateness[i] / 1e6:g} s late" if call.lateness[i] else ""
    return (
        f"stream {encoding.name!r}: {_FORMS[encoding.model.form]} {encoding.model}{existence}{_where(encoding)}{late}"
    )


def _assign(call: AssignCall, tiles: int | None) -> Iterator[str]:
    blocks, within = call.blocks, f"{call.plan.epsilon:g}"
    how = "the best pair first" if blocks.greedy else "the greatest sum, component by component"
    yield f"one partner each: within {within} with probability at least {call.probability:.6g}; {how}"
    yield "blocks: " + (f"{blocks.span / 1e6:.6g} seconds" if blocks.span else "rows of one time")
    density = "estimated for each block" if blocks.density is None else f"{blocks.density:g}"
    yield f"gain: by {blocks.by}" + (f"; density of unrelated rows {density}" if blocks.by == "likelihood" else "")
    if call.observed is not None:
        counts = call.observed.counts
        some, most = counts.get("components", 0), counts.get("largest component", 0)
        yield f"components: {some:,}, the largest of {most:,} rows"
        if lacking := counts.get("without density", 0):
            first = counts.get("infinitely likely", 0)
            yield (
                f"likelihood: pairs without a density, as neither row has an error in some direction: {lacking:,}, of "
                f"which {first:,} are at one place there and come first; the others are never chosen"
            )
    if tiles is not None:
        yield f"on Spark: blocks spread over {tiles} buckets by hash"


def _join(call: JoinCall, tiles: int | None) -> Iterator[str]:
    plan = call.plan
    kind = "self-join" if plan.self_join else f"join of {len(plan.streams)} streams"
    within = f"{plan.epsilon:g}" + ("" if plan.vertical is None else f", and {plan.vertical:g} in altitude,")
    least = call.probability if plan.best else plan.threshold + TOLERANCE
    if plan.best:
        kind = f"the {plan.best} nearest by {plan.by}"
    if plan.fewer_than:
        least = call.probability
        yield f"outliers: fewer than {plan.fewer_than} partners within {within} with probability at least {least:.6g}"
    else:
        emits = "changes" if plan.changes else "matches"
        yield f"{kind}: within {within} with probability at least {least:.6g}; emits {emits}"
    yield f"window: {described(plan.rule, plan.windows)}"
    yield f"probability: {_method(plan)}"
    if plan.rule is not None and plan.rule.uncertain:
        yield (
            "membership: exact Poisson-binomial, asked only of pairs whose match alone passes"
            if (plan.rule.method == 0)
            else "membership: by an approximation"
        )
    if plan.by_means and not call.encodings[0].kept_apart:
        yield _TREES
    else:
        yield f"index: {_BY_COST if plan.index == 'auto' else plan.index}"
        yield f"bounds: {', '.join(sorted(plan.bounds)) or 'none'}"
    if call.observed is not None:
        yield from _observed(call.observed)
    if tiles is not None:
        before = "rows are numbered first, " + ("by buckets of groups" if plan.grouped else "on one core")
        yield f"on Spark: {tiles} tiles" + (f"; {before}" if plan.rule is not None else "")


def _method(plan: JoinPlan) -> str:
    """How the probability of a pair is found."""
    if plan.points_only:
        return "as the product of existences, where points are close"
    if not plan.closed_form:
        of_some = "; of two Gaussians without samples" if plan.some_closed_form else ""
        return f"over samples; a Gaussian or a ball is its fixed points{of_some}"
    if not all(map(_is_round, plan.models)):
        return "by quadrature"
    if not plan.euclidean:
        return "in closed form or by quadrature"
    if not any(isinstance(model, Position) and model.altitude is not None for model in plan.models):
        return "in closed form, by a non-central chi-square"
    if plan.vertical is None:
        return "by quadrature over the difference of altitudes"
    return "in closed form, by a non-central chi-square along the Earth and a normal distribution in altitude"


def _is_round(model: Model) -> bool:
    """Whether errors are the same in all directions, on the Earth in all horizontal ones."""
    if isinstance(model, Gaussian):
        return model.isotropic or len(model.columns) == 1
    return not isinstance(model, Position) or model.ellipse is None


def _observed(observed: Observed) -> Iterator[str]:
    """The index of each stream's rows, what was expected and what came."""
    for name, choice in observed.choices:
        each = ", ".join(f"{index} {cost / 1000:.3g}" for index, cost in choice.costs.items())
        costs = f"; microseconds a probe: {each}" if each else ""
        cells = choice.cells
        grid = f" of cells {cells.side:.3g} wide" if choice.index != "scan" else ""
        yield (
            f"index of {name!r}: {choice.index}{grid}, for {choice.rows:,} rows; a probe looks at {choice.visited:.2%} "
            f"of them and judges {choice.near:.2%}{costs}"
        )
    counts, estimate = observed.counts, observed.estimate
    if estimate is not None:
        yield (
            f"expected of {estimate.rows:,} rows, by a sample of {estimate.drawn:,} pairs: {estimate.pairs:,.0f} pairs "
            f"in each other's windows, {estimate.near:,.0f} of them near, {estimate.answers:,.0f} answers"
        )
    looked = f"{counts['candidates']:,} candidates of the index, " if "candidates" in counts else ""
    yield f"actual: {looked}{counts.get('answers', 0):,} answers"
    decided = {name.replace("pruned_", "pruned by "): n for name, n in counts.items() if n and name not in _TOTALS}
    yield "decided: " + (", ".join(f"{name} {n:,}" for name, n in decided.items()) or "nothing")
    if "audited" in counts:
        wrong = counts.get("false_dismissals", 0)
        yield f"audit: {counts['audited']:,} pairs without an answer computed in full, {wrong:,} false dismissals"
        if wrong:
            yield f"warning: bounds decided against {wrong:,} pairs that are answers; Options(bounds=()) uses none"
