"""The page of jobs that run now: a map, what happens, rates, and a histogram, fed by the server that gives the page."""

from __future__ import annotations

from html import escape

from appulse.report.page import page

__all__ = ["live_page"]


def live_page(title: str) -> str:
    """The page, with a map by Leaflet; its script asks the server that it comes from for ``feed``, and nothing else."""
    body = f"""<p id="state" role="status">Connecting.</p>
<div class="columns"><section aria-label="Map">
<div class="controls">
<output id="now" aria-label="Time of the rows"></output>
<label>job <select id="job" aria-label="Job that is shown"></select></label>
<button id="whole" type="button">Whole map</button>
<button id="all" type="button" hidden>All</button>
<button id="busy" type="button">Where it happens</button>
<button id="hold" type="button" aria-pressed="false">Hold</button>
</div>
<div id="live" aria-label="{escape(title)}: where things are now"></div>
<p>Lines: where things have been. Circles: the error of a position, one standard deviation, where it can be seen. Drag
moves the map, the wheel of a mouse scales it.</p>
</section><section aria-label="Figures and events">
<div class="figures" id="figures"></div>
<h2>Probabilities of answers</h2>
<div id="histogram" role="img" aria-label="Histogram of probabilities"></div>
<p class="ends"><span>0</span><span id="highest"></span><span>1</span></p>
<h2 id="events-title">As they happen</h2>
<ol id="events" aria-labelledby="events-title"></ol>
<h2>Rejects</h2>
<ol id="rejects"></ol>
</section></div>"""
    return page(
        title, body, {}, "live_page.js", connects=True, library="leaflet/leaflet.js", styles="leaflet/leaflet.css"
    )
