"""The views of jobs: filters live in the URL, a failed job shows its error, and each action visibly works."""

import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from dashboard.pages import Complaints, Pages
from dashboard.shop_server import ShopServer

LARGE = "9007199254740993"


def _query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def _rows(page: Page) -> list[str]:
    return [one.get_attribute("data-row-id") or "" for one in page.locator("[data-row-id]").all()]


def test_filters_combine_in_the_url_and_survive_reload_back_and_a_new_window(shop: ShopServer, pages: Pages) -> None:
    """State, text of arguments and name narrow the list together; each choice is one step of the history."""
    page = pages.open("/jobs")
    expect(page.get_by_role("link", name="charge")).to_be_visible()
    page.get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile("state=failed"))
    expect(page.locator("[data-row-id]")).to_have_count(1)
    assert _rows(page) == [shop.ids["failed"]]
    page.get_by_role("searchbox", name="Search in arguments").fill("nothing like this")
    expect(page.locator("[data-state=filtered-empty]")).to_be_visible()
    assert _query(page) == {"state": "failed", "q": "nothing like this"}
    page.reload()
    expect(page.get_by_role("searchbox", name="Search in arguments")).to_have_value("nothing like this")
    expect(page.locator("[data-state=filtered-empty]")).to_be_visible()
    elsewhere = pages.open(page.url.removeprefix(shop.url))
    expect(elsewhere.locator("[data-state=filtered-empty]")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/jobs$"))
    expect(page.get_by_role("link", name="charge")).to_be_visible()


def test_retrying_is_a_filter_and_shows_the_error(shop: ShopServer, pages: Pages) -> None:
    """Jobs that failed and wait for their next attempt, with the reason and how long they wait."""
    page = pages.open("/jobs?state=retrying")
    row = page.locator(f"[data-row-id='{shop.ids['retrying']}']")
    expect(row).to_contain_text("retrying")
    expect(row).to_contain_text("ConnectionError: the relay does not answer")
    expect(row).to_contain_text("due in")
    expect(page.locator("[data-row-id]")).to_have_count(1)


def test_a_failed_job_shows_its_error_its_stack_and_why(shop: ShopServer, pages: Pages) -> None:
    """Opened from the list by its row; the traceback of the last attempt is open."""
    page = pages.open("/jobs?state=failed")
    page.get_by_role("link", name="charge").click()
    expect(page).to_have_url(re.compile(f"/jobs/{shop.ids['failed']}$"))
    expect(page.get_by_role("region", name="Why")).to_contain_text("It failed after 1 attempt")
    errors = page.get_by_role("region", name="Errors")
    expect(errors).to_contain_text("ValueError: card of order 7 was declined")
    expect(errors.locator("pre")).to_contain_text("Traceback (most recent call last)")
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("Failed")


def test_retry_is_told_as_confirmed_and_leads_to_its_event(shop: ShopServer, pages: Pages) -> None:
    """Nothing changes before the server has said so; then the job is queued again."""
    failed = shop.enqueue("charge", 11)
    shop.until_job(failed, state="failed")
    page = pages.open(f"/jobs/{failed}")
    page.get_by_role("button", name="Retry").click()
    notice = page.locator(".notice")
    expect(notice).to_contain_text(f"Retry confirmed: job {failed} is queued again.")
    notice.get_by_role("link", name="See the event").click()
    expect(page.get_by_role("table", name="Events")).to_contain_text("retried")
    shop.until_job(failed, state="failed")


def test_a_refused_retry_says_why_and_leads_to_the_job_in_the_way(
    shop: ShopServer, pages: Pages, complaints: Complaints
) -> None:
    """Its key is held by a job that waits: the notice links that one."""
    complaints.expect("409")
    failed = shop.enqueue("charge", 12, key="order-12")
    shop.until_job(failed, state="failed")
    holder = shop.enqueue("charge", 12, key="order-12", delay="1h")
    page = pages.open(f"/jobs/{failed}")
    page.get_by_role("button", name="Retry").click()
    page.locator(".notice").get_by_role("link", name=f"Open job {holder}").click()
    expect(page).to_have_url(re.compile(f"/jobs/{holder}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"charge {holder}")


def test_a_queued_job_is_run_now_and_another_is_canceled_with_a_reason(shop: ShopServer, pages: Pages) -> None:
    """Canceling asks first; the reason stands in the answer to why."""
    first, second = (shop.enqueue("audit", f"https://{word}", delay="1h") for word in ("now", "never"))
    page = pages.open(f"/jobs/{first}")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("took")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    page = pages.open(f"/jobs/{second}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the customer left")
    dialog.get_by_role("button", name="Cancel job").click()
    expect(page.get_by_role("region", name="Why")).to_contain_text("It was canceled: the customer left.")


def test_select_all_touches_exactly_what_the_dry_run_counted(shop: ShopServer, pages: Pages) -> None:
    """Jobs that fail after the dry run are left alone."""
    wanted = [shop.enqueue("charge", 1000 + n, kwargs={"password": "bulk"}) for n in range(60)]
    for one in wanted:
        shop.until_job(one, state="failed")
    page = pages.open("/jobs?state=failed&name=charge&q=bulk")
    expect(page.get_by_role("button", name="Load more")).to_be_visible()
    page.get_by_role("checkbox", name="Select all rows that are loaded").check()
    page.get_by_role("button", name="Select all matching").click()
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("All 60 matching jobs")
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("60 jobs would be deleted.")
    later = shop.enqueue("charge", 2000, kwargs={"password": "bulk"})
    shop.until_job(later, state="failed")
    dialog.get_by_role("button", name="Delete 60 jobs").click()
    expect(dialog).to_contain_text("60 jobs deleted.")
    left = shop.get("/api/jobs", state="failed", name="charge", q="bulk")["items"]
    assert [str(one["id"]) for one in left] == [later]
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("region", name="Selected jobs")).to_have_count(0)


def test_deleting_more_than_a_hundred_needs_the_count_typed(shop: ShopServer, pages: Pages) -> None:
    """The button stays off until the number stands there."""
    wanted = [shop.enqueue("charge", 3000 + n, kwargs={"password": "many"}) for n in range(101)]
    for one in wanted:
        shop.until_job(one, state="failed")
    page = pages.open("/jobs?state=failed&q=many")
    page.get_by_role("checkbox", name="Select all rows that are loaded").check()
    page.get_by_role("button", name="Select all matching").click()
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Delete 101 jobs")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type 101 to go on").fill("101")
    button.click()
    expect(dialog).to_contain_text("101 jobs deleted.")


def test_integers_beyond_2_to_the_53_are_shown_and_copied_exactly(shop: ShopServer, pages: Pages) -> None:
    """In a result, an argument, and in what is copied."""
    page = pages.open(f"/jobs/{shop.ids['done']}", permissions=["clipboard-read", "clipboard-write"])
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("button").first).to_be_visible()
    while (closed := result.locator("[aria-expanded=false]")).count():
        closed.first.click()
    expect(result).to_contain_text(LARGE)
    result.get_by_role("button", name="Copy result as JSON").click()
    expect(result.get_by_role("button", name="Copy result as JSON")).to_be_visible()
    assert LARGE in page.evaluate("navigator.clipboard.readText()")


def test_a_job_that_no_worker_takes_says_so(shop: ShopServer, pages: Pages) -> None:
    """Its queue is paused, with the reason and the actor."""
    page = pages.open(f"/jobs/{shop.ids['held']}")
    expect(page.get_by_role("region", name="Why")).to_contain_text("Its queue 'reports' is paused")
    expect(page.get_by_role("region", name="Why")).to_contain_text("month end")


def test_many_jobs_keep_few_rows_in_the_page(shop: ShopServer, pages: Pages) -> None:
    """Scrolling through hundreds of jobs keeps at most 60 rows, and Back returns to the same row."""
    for number in range(160):
        shop.enqueue("audit", f"https://scroll/{number}", delay="3h")
    page = pages.open("/jobs?q=scroll")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    for _ in range(12):
        page.mouse.wheel(0, 1500)
        page.wait_for_timeout(50)
        assert page.locator("[data-row-id]").count() <= 60
    expect(page.locator("[aria-rowindex='161']")).to_be_visible()
    last = page.locator("[data-row-id]").last
    wanted = last.get_attribute("data-row-id")
    last.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("audit")
    page.go_back()
    expect(page.locator(f"[data-row-id='{wanted}']")).to_be_in_viewport()


def test_failures_are_grouped_by_cause_and_retried_by_the_group(shop: ShopServer, pages: Pages) -> None:
    """Jobs of one name and class of error are one group, with its text once; Retry shows a dry run first."""
    more = [shop.enqueue("charge", order) for order in (21, 22)]
    for one in more:
        shop.until_job(one, state="failed")
    page = pages.open("/jobs")
    page.get_by_role("link", name="Causes of failures").click()
    expect(page).to_have_url(re.compile("/jobs/causes$"))
    group = page.locator("[data-cause='charge ValueError']")
    expect(group).to_contain_text("card of order <n> was declined")
    expect(group.get_by_role("link", name=more[-1], exact=True)).to_be_visible()
    found = re.match(r"\s*(\d+)", group.inner_text())
    assert found is not None
    assert int(found[1]) >= 3
    group.get_by_role("button", name="Retry all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{found[1]} jobs would be queued again.")
    dialog.get_by_role("button", name=f"Retry {found[1]} jobs").click()
    # Those of other tests among them may be skipped: a key is taken.
    expect(dialog).to_contain_text(re.compile(r"\d+ jobs queued again\."), timeout=30_000)
    dialog.get_by_role("button", name="Close").click()
    for one in (*more, shop.ids["failed"]):
        shop.until_job(one, state="failed")
    group.get_by_role("link", name="Show jobs").click()
    expect(page).to_have_url(re.compile("/jobs\\?state=failed&name=charge&error=ValueError$"))
