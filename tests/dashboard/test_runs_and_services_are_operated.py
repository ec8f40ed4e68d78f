"""Runs and services in a real browser: what they show, and that each action reaches the server and is confirmed."""

import re

from playwright.sync_api import Route, expect

from dashboard.pages import Pages
from dashboard.shop_server import ShopServer


def test_a_run_is_looked_at_extended_and_canceled(shop: ShopServer, pages: Pages) -> None:
    """Look now makes another look; Extend raises the budget; Cancel ends the run, after a question."""
    run = shop.begin("run-operated")
    page = pages.open(f"/runs/{run}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("run-operated")
    before = shop.get(f"/api/runs/{run}")
    page.get_by_role("button", name="Look now").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] > before["looks"])
    page.get_by_role("button", name="Extend").click()
    page.get_by_role("dialog").get_by_role("button", name="Extend").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["budget_s"] > before["budget_s"])
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["state"] == "canceled")
    expect(page.get_by_role("main")).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Look now")).to_have_count(0)


def test_a_run_is_paused_with_a_reason_and_resumed(shop: ShopServer, pages: Pages) -> None:
    """On its page and in the list; while it is paused nothing counts down, and no look is offered."""
    run = shop.begin("run-paused")
    page = pages.open(f"/runs/{run}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the remote is moved")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    says = page.locator("[data-sentence]")
    expect(says).to_have_text(
        "Paused by HTTP from 127.0.0.1: the remote is moved. No worker looks at it, and its budget stands still."
    )
    expect(page.get_by_role("heading", level=1).locator("..")).to_contain_text("paused")
    expect(page.get_by_role("button", name="Look now")).to_have_count(0)
    paused = shop.get(f"/api/runs/{run}")
    assert (paused["phase"], paused["next_look_at"], paused["paused"]["reason"]) == (
        "paused",
        None,
        "the remote is moved",
    )
    expect(page.get_by_role("region", name="Why")).to_contain_text("It is paused by HTTP from 127.0.0.1")
    page.goto(f"{shop.url}/runs?watch=export")
    row = page.locator("[data-row-id]").filter(has_text="run-paused")
    expect(row).to_contain_text("paused by HTTP from 127.0.0.1: the remote is moved")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Look now")).to_be_visible()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] > paused["looks"])
    shop.post(f"/api/runs/{run}/cancel")


def test_runs_are_filtered_by_their_state_in_the_url(shop: ShopServer, pages: Pages) -> None:
    """A choice narrows the list; the address opens the same list elsewhere."""
    page = pages.open("/runs")
    expect(page.get_by_role("link", name="run-done")).to_be_visible()
    page.get_by_role("button", name="Failed", exact=True).click()
    expect(page.get_by_role("link", name="run-done")).to_have_count(0)
    expect(page.get_by_role("link", name="run-failed")).to_be_visible()
    elsewhere = pages.open(page.url.removeprefix(shop.url))
    expect(elsewhere.get_by_role("link", name="run-failed")).to_be_visible()
    expect(elsewhere.get_by_role("link", name="run-done")).to_have_count(0)


def test_a_service_is_checked_and_muted(shop: ShopServer, pages: Pages) -> None:
    """Check now looks at once; Mute is confirmed by the server and can be taken back."""
    page = pages.open("/services/warehouse")
    expect(page.get_by_role("region", name="Why")).to_contain_text("db")
    before = shop.get("/api/services/warehouse")["looked_at"]
    page.get_by_role("button", name="Check now").click()
    shop.until(lambda: shop.get("/api/services/warehouse")["looked_at"] != before)
    page.get_by_role("button", name="Mute").click()
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(page.get_by_role("button", name="Unmute")).to_be_visible()
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("button", name="Mute", exact=True)).to_be_visible()


def test_a_service_is_paused_with_a_reason_and_resumed(shop: ShopServer, pages: Pages) -> None:
    """Pause asks for a reason, shows it with the hatched bar, and is found by its status; Resume looks at once."""
    page = pages.open("/services/billing")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the data center moves")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="Confirmed: billing is paused.")).to_be_visible()
    expect(page.get_by_text("the data center moves").first).to_be_visible()
    expect(page.get_by_role("button", name="Check now")).to_have_count(0)
    listed = pages.open("/services?status=paused")
    row = listed.locator("[data-row-id=billing]")
    expect(row).to_contain_text("paused by HTTP from 127.0.0.1: the data center moves")
    expect(row.get_by_role("img", name="paused now")).to_be_visible()
    before = shop.get("/api/services/billing")["looked_at"]
    row.get_by_role("button", name="Resume").click()
    shop.until(lambda: shop.get("/api/services/billing")["looked_at"] != before)
    expect(page.get_by_role("button", name="Check now")).to_be_visible()
    assert shop.get("/api/services/billing")["status"] == "up"


def test_names_with_markup_spaces_and_slashes_stay_text_and_open(shop: ShopServer, pages: Pages) -> None:
    """A service's name is only ever text, and its address leads to its page."""
    name = 'a/b c<img src=x onerror="document.title=1">'
    shop.post("/api/services", {"name": name, "target": "tcp://127.0.0.1:9", "every": "1h"})
    page = pages.open("/services")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    assert page.locator("main img").count() == 0


def test_a_degraded_service_names_what_is_to_blame(shop: ShopServer, pages: Pages) -> None:
    """In the overview, also behind five loops that fail, and on its own page with the time since when."""
    page = pages.open("/doctor")

    def failing(route: Route) -> None:
        answer = route.fetch()
        one = answer.json()["items"][0] | {"is_alive": True, "failures": 3}
        route.fulfill(response=answer, json={"items": [one | {"name": f"loop-{n}"} for n in range(5)], "after": None})

    page.route("**/api/loops?*", failing)
    page.goto(f"{shop.url}/")
    concerns = page.get_by_role("region", name="Needs attention")
    concerns.get_by_role("button", name="Show all").click()
    expect(concerns).to_contain_text("Service search Degraded. Because of redis.")
    page.goto(f"{shop.url}/services/search")
    dependencies = page.get_by_role("region", name="Dependencies")
    expect(dependencies).to_contain_text(re.compile(r"search degraded since .* because\s+redis"))
    expect(dependencies.get_by_role("listitem").first).to_contain_text("to blame")


def test_a_service_that_has_recovered_blames_nothing(shop: ShopServer, pages: Pages) -> None:
    """The graph is read less often than the service: what it says of the trouble before is not shown."""
    page = pages.open("/doctor")
    node = {"is_service": True, "status": "down", "since": None, "roots": ["redis"]}
    graph = {"nodes": [node | {"name": "billing"}, node | {"name": "redis"}], "is_cut": False}
    edges = [{"source": "billing", "target": "redis"}]
    page.route("**/api/graph?*", lambda route: route.fulfill(json=graph | {"edges": edges}))
    page.goto(f"{shop.url}/services/billing")
    dependencies = page.get_by_role("region", name="Dependencies")
    expect(dependencies).to_contain_text("redis")
    expect(dependencies).not_to_contain_text("because")


def test_a_link_to_a_look_shows_the_facts_of_that_time(shop: ShopServer, pages: Pages) -> None:
    """`?at=look:1` shows what the store had then, also when later looks have changed it."""
    run = shop.ids["run with facts"]
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] >= 4)
    page = pages.open(f"/runs/{run}?at=look:1")
    facts = page.get_by_role("region", name="Facts")
    expect(facts).to_contain_text("accepted")
    expect(facts).not_to_contain_text("sealed")
    page.get_by_role("button", name="Next look").click()
    expect(facts).to_contain_text("copying")
    expect(page).to_have_url(re.compile("at=look(:|%3A)2"))
    page.reload()
    expect(facts).to_contain_text("copying")
    looks = page.get_by_role("region", name="Looks", exact=True)
    expect(looks).to_contain_text("status → sealed")
    expect(looks.get_by_role("columnheader", name="Took")).to_be_visible()


def test_schedules_and_tables_show_what_they_do(shop: ShopServer, pages: Pages) -> None:
    """When a schedule is due next; the rows of an adopted table, by status, and those whose status is not mapped."""
    page = pages.open("/schedules")
    expect(page.get_by_role("row").filter(has_text="close_day")).to_contain_text("0 3 * * *")
    page.goto(f"{shop.url}/tables")
    expect(page.get_by_role("main")).to_contain_text("orders")
    expect(page.get_by_role("main")).to_contain_text("on hold")


def test_an_opened_incident_is_an_error_in_the_list_of_events(shop: ShopServer, pages: Pages) -> None:
    """A sentence without a word for a state has its tone all the same."""
    for _ in range(2):
        shop.post("/api/services/warehouse/check")
    page = pages.open("/events?key=warehouse")
    row = page.locator("[data-row-id]").filter(has_text="incident opened").first
    expect(row.locator(".status")).to_have_text("error")
    expect(row.get_by_role("button", name="Copy link")).to_be_visible()


def test_loops_show_their_last_runs_and_why_they_wait(shop: ShopServer, pages: Pages) -> None:
    """A line for each run, and how often in a row it failed."""
    page = pages.open("/loops")
    row = page.get_by_role("row").filter(has_text="sync_stock")
    expect(row.get_by_role("img", name=re.compile(r"^Last \d+ runs?: \d+ failed"))).to_be_visible()
    expect(row).to_contain_text(re.compile(r"failed \d+ times? in a row"))
    well = page.get_by_role("row").filter(has_text="refresh_prices")
    expect(well.get_by_role("img", name=re.compile(r"^Last \d+ runs?: \d+ ok"))).to_be_visible()


def test_a_timeline_has_lanes_of_looks_facts_and_local_steps(shop: ShopServer, pages: Pages) -> None:
    """Equal looks are one, each gap has its wait and rule, and a key chooses a look."""
    run = shop.ids["run with facts"]
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] >= 4)
    page = pages.open(f"/runs/{run}")
    lanes = page.get_by_role("region", name="Lanes of the timeline")
    log = shop.get(f"/api/runs/{run}")["log"]
    looked, wait = (lanes.get_by_role("listitem").nth(number) for number in (0, 1))
    expect(looked).to_contain_text("status → accepted")
    expect(wait).to_contain_text(f"{log[0]['rule']}")
    expect(wait).to_contain_text("waits ")
    expect(lanes.get_by_role("button", name=re.compile("^looks 2.3$"))).to_be_visible()
    lanes.get_by_role("button", name="look 1", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("at=look(:|%3A)1"))
    expect(page.get_by_role("region", name="Facts at look 1")).to_contain_text("accepted")


def test_the_cost_of_polling_is_told_by_watch(shop: ShopServer, pages: Pages) -> None:
    """Looks per useful change, and what another shortest wait would save; the choice is in the address."""
    run = shop.ids["run with facts"]
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] >= 6)
    page = pages.open("/runs?watch=export")
    page.get_by_role("link", name="Cost of polling").click()
    expect(page).to_have_url(re.compile(r"/runs/polling\?watch=export$"))
    row = page.get_by_role("row").filter(has_text="export")
    expect(row).to_contain_text(re.compile(r"\d+ looks \(\d+ %\)"))

    def shows_the_figures() -> bool:
        cells = row.get_by_role("cell").all_inner_texts()
        [cost] = shop.get("/api/polling", watch="export")["items"]
        return bool(cells[2:4] == [str(cost["looks"]), str(cost["changes"])])

    shop.until(shows_the_figures)
    page.get_by_role("group", name="Shortest wait").get_by_role("button", name="1m", exact=True).click()
    expect(page).to_have_url(re.compile("floor=60"))
    expect(page.get_by_role("columnheader", name="Saved with 1m")).to_be_visible()


def test_a_service_in_trouble_names_the_runs_behind_it(shop: ShopServer, pages: Pages) -> None:
    """Live runs whose target has its host; others are not listed."""
    shop.begin("run-behind", remote=shop.remote.url)
    shop.until(lambda: shop.get("/api/runs/export:run-behind")["looks"])
    page = pages.open("/services/warehouse")
    behind = page.get_by_role("region", name="Dependencies").locator("[data-behind]")
    expect(behind).to_have_text(re.compile(r"1 live run of 127.0.0.1:\s+export:run-behind"))
    behind.get_by_role("link", name="export:run-behind").click()
    expect(page).to_have_url(re.compile("/runs/export:run-behind$"))


def test_a_late_look_says_what_it_waits_for(shop: ShopServer, pages: Pages) -> None:
    """No worker is alive: in the list and on the page of a run and of a service."""
    page = pages.open("/doctor")

    def without_workers(route: Route) -> None:
        route.fulfill(json={"items": [], "after": None})

    def late(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        for one in body.get("items", [body]):
            for name in {"due_at", "next_look_at"} & set(one):
                one[name] = one[name] and "2026-01-01T00:00:00Z"
            one["state"] = "queued" if "outcome" in one and one["outcome"] is None else one.get("state")
        route.fulfill(response=answer, json=body)

    page.route("**/api/workers", without_workers)
    for pattern in (
        "**/api/runs?*",
        "**/api/runs",
        "**/api/runs/export*run-waiting",
        "**/api/services?*",
        "**/api/services/search",
    ):
        page.route(pattern, late)
    said = {
        "/runs": "late: no worker is alive",
        f"/runs/{shop.ids['run waiting']}": "no worker is alive.",
        "/services": "its look is late: no worker is alive",
        "/services/search": "no worker is alive",
    }
    for path, words in said.items():
        page.goto(f"{shop.url}{path}")
        expect(page.get_by_role("main").get_by_text(words).first).to_be_visible()
